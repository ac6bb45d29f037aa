package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Kinds of sealed objects that only jobs read.
const (
	planKind = "plan"
	unitKind = "unit"
)

// Spec describes the backup that a job makes. It does not change during the life of the job.
type Spec struct {
	ID   string
	Kind manifest.Kind
	// Parent is the id of the backup that an incremental backup continues.
	Parent string
	// Includes reports whether a keyspace belongs to the backup. nil includes all keyspaces.
	Includes func(name string) bool
	// Recipients can read the backup. If there are none, the backup is not encrypted.
	Recipients archive.Recipients
	// Identity is a secret of the job, which is set if the backup is encrypted. A later Run reads the
	// plan and the finished units with it. Pieces and the manifest are not encrypted for it.
	Identity archive.Identities
	// Keep limits how long the history is protected.
	Keep  time.Duration
	Began time.Time
	// Schedule is the name of the schedule that the backup is made for. It is empty if there is none.
	// With a schedule, the history after the moment is kept for the schedule's next backup, for at
	// most ScheduleKeep.
	Schedule     string
	ScheduleKeep time.Duration
}

// Cluster has the operations of a cluster that a job needs. An error of a method ends the Run,
// except an error of Export. Its methods may be called from several goroutines.
type Cluster interface {
	// Moment first fixes the state of the coordination store, and then chooses a timestamp at or above
	// the timestamps of all writes that were acknowledged before. It returns when replicas can be read
	// at the timestamp. Because of this order, the coordination store has nothing that depends on a
	// write which is missing from the keyspaces at the timestamp. The caller closes the returned
	// Coordination. It is nil if the cluster has no coordination store.
	Moment(context.Context) (hlc.Timestamp, Coordination, error)
	// Describe lists the keyspaces and their partitions.
	Describe(context.Context) (*Description, error)
	// Protect asks the cluster to keep the versions that are needed to read a keyspace at a timestamp,
	// or from the timestamp on. The protection has the name of the backup and ends after the given
	// time. Protect may be repeated. It returns ErrTooOld if versions were already collected.
	Protect(ctx context.Context, keyspace, backup string, from hlc.Timestamp,
		keep time.Duration) error
	// Unprotect ends the protection of Protect. It may be repeated.
	Unprotect(ctx context.Context, keyspace, backup string) error
	// Keep asks the cluster to keep the history of a keyspace since a moment, for at most the given
	// time. The request is stored under an id and replaces an earlier request with that id. Keep
	// returns no error if the keyspace does not exist any more.
	Keep(ctx context.Context, keyspace, id string, from hlc.Timestamp,
		keep time.Duration) error
	// Nodes returns the data nodes that can be given units now.
	Nodes(context.Context) ([]keys.NodeID, error)
	// Export asks a node to write the pieces of a unit. After an error the unit may be given to
	// another node, even if the first node still works on it.
	Export(ctx context.Context, node keys.NodeID, task *Task) (*manifest.Done, error)
}

// Coordination is the state of the coordination store at one revision. It is for one goroutine.
type Coordination interface {
	Revision() int64
	// Copy passes the whole state to part, in parts.
	Copy(ctx context.Context, part func([]byte) error) error
	// Changes passes the changes since an earlier revision to part, in parts. Leases, users and roles
	// are passed completely, and digest is a digest of them. Changes returns ErrTooOld if the store no
	// longer has the changes since that revision.
	Changes(ctx context.Context, since int64, part func([]byte) error) (digest string, err error)
	Close()
}

// Task describes a unit to the node that writes it.
type Task struct {
	Plan *manifest.Head
	// Keyspace is the keyspace of the unit.
	Keyspace *manifest.Keyspace
	Number   int
	Unit     manifest.Unit
}

// Description describes a cluster at one time.
type Description struct {
	Cluster, Version string
	Keyspaces        []Keyspace
	// Settings is Plan.Settings of package manifest.
	Settings json.RawMessage
}

// Keyspace is a keyspace and its partitions in the order of their rows.
type Keyspace struct {
	manifest.Keyspace
	Partitions []manifest.Partition
}

// Errors of a Cluster.
var (
	// ErrNone: the cluster has no coordination store.
	ErrNone = errors.New("there is no coordination store")
	// ErrGone: a keyspace of the plan was dropped.
	ErrGone = errors.New("a keyspace was dropped while the backup was made")
	// ErrTooOld: the history that should be protected was already collected.
	ErrTooOld = errors.New("the history of the keyspace since then was collected")
)

// ScheduleID is the id under which the cluster keeps history for the next backup of a schedule.
func ScheduleID(schedule string) string { return "schedule-" + schedule }

// Config has the dependencies and limits of a Run. Cluster and Target must be set.
type Config struct {
	Cluster Cluster
	Target  target.Target
	// Random returns random numbers that name attempts.
	Random func() uint64
	// Now returns the time of day, for the description of the backup.
	Now func() time.Time
	// Limits limit the units. The default is DefaultUnitLimits.
	Limits manifest.UnitLimits
	// PerNode, Attempts and RetryPause are the fields of spread.Config.
	PerNode, Attempts int
	RetryPause        time.Duration
	// Progress is called with the progress of the Run, by one goroutine at a time. It may be nil.
	Progress func(Progress)
}

// DefaultUnitLimits keep a unit to some seconds of work.
var DefaultUnitLimits = manifest.UnitLimits{Bytes: 256 << 20, Partitions: 256}

// Progress describes the progress of a Run.
type Progress struct {
	// Step is the current step, as a phrase.
	Step        string
	At          hlc.Timestamp
	Done, Units int
	Totals      manifest.Totals
	// Failures counts the errors of nodes so far. The text of the last error follows.
	Failures int
	LastFail string
}

func (c *Config) ensureDefaults() error {
	if c.Cluster == nil || c.Target == nil || c.Random == nil || c.Now == nil {
		return errors.New("backup job: Cluster, Target, Random and Now must be set")
	}
	if c.Limits == (manifest.UnitLimits{}) {
		c.Limits = DefaultUnitLimits
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return nil
}

// Run makes the backup, or continues it, and returns its head. If the backup is complete already,
// Run only finishes what an earlier one has left to be cleaned up.
func Run(ctx context.Context, spec Spec, config Config) (*manifest.Head, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	if bad := manifest.CheckID(spec.ID); bad != "" {
		return nil, errors.New(bad)
	}
	r := &run{spec: spec, Config: config}
	m, err := r.complete(ctx)
	if err != nil {
		return nil, err
	}
	return &m.Head, r.end(ctx, m)
}

// run is the state of a running Run.
type run struct {
	Config
	spec     Spec
	progress Progress
}

// tell reports the progress. An empty step leaves the step as it is.
func (r *run) tell(step string) {
	if step != "" {
		r.progress.Step = step
	}
	r.Config.Progress(r.progress)
}

// own returns the options for objects that only the job reads. They are encrypted for the job's own
// identity, too.
func (r *run) own() archive.Options {
	all := append(archive.Recipients{}, r.spec.Recipients...)
	if len(all) > 0 {
		all = append(all, r.spec.Identity.Recipients()...)
	}
	return archive.Options{Recipients: all}
}

// complete does all steps up to the creation of the manifest that are not done yet.
func (r *run) complete(ctx context.Context) (*manifest.Manifest, error) {
	r.tell("look for what is there")
	plan, err := r.plan(ctx)
	if errors.Is(err, target.ErrNotFound) {
		plan, err = r.begin(ctx)
	}
	if err != nil {
		return nil, err
	}
	r.progress.At, r.progress.Units = plan.Head.At.Timestamp, len(plan.Units)
	done, err := r.units(ctx, plan)
	if err != nil {
		return nil, err
	}
	m := &manifest.Manifest{Plan: *plan, Done: done}
	m.Head.Totals, m.Head.Ended = m.Sum(), r.Now().UTC()
	r.progress.Totals = m.Head.Totals
	return m, m.Check()
}

// plan reads the plan.
func (r *run) plan(ctx context.Context) (*manifest.Plan, error) {
	name := manifest.PlanName(r.spec.ID)
	sealed, err := r.Target.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := archive.Unseal(sealed, planKind, r.spec.Identity)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	plan, err := manifest.DecodePlan(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if plan.Head.ID != r.spec.ID {
		return nil, fmt.Errorf("%s is the plan of the backup %s", name, plan.Head.ID)
	}
	return plan, nil
}

// end makes the backup visible and removes leftovers.
func (r *run) end(ctx context.Context, m *manifest.Manifest) error {
	r.tell("complete the backup")
	// Someone may have deleted what this backup continues while it was made.
	if _, _, err := r.parent(ctx); err != nil {
		return err
	}
	data, err := manifest.Encode(m)
	if err != nil {
		return err
	}
	sealed, _, err := archive.Seal(manifest.ManifestKind, data,
		archive.Options{Recipients: r.spec.Recipients})
	if err != nil {
		return err
	}
	// A manifest of an earlier Run is the same, except for the time at which the backup ended.
	err = r.Target.Create(ctx, manifest.ManifestName(m.Head.ID), sealed)
	if err != nil && !errors.Is(err, target.ErrExists) {
		return err
	}
	head, err := manifest.Encode(m.Head)
	if err != nil {
		return err
	}
	if sealed, _, err = archive.Seal(manifest.HeadKind, head, archive.Options{}); err != nil {
		return err
	}
	if err := r.Target.Put(ctx, manifest.HeadName(m.Head.ID), sealed); err != nil {
		return err
	}
	r.tell("remove what is left over")
	if err := r.sweep(ctx, m); err != nil {
		return err
	}
	for i := range m.Keyspaces {
		// The history at the moment is still protected, so that there is no gap between the two
		// protections.
		if r.spec.Schedule != "" {
			if err := r.Cluster.Keep(ctx, m.Keyspaces[i].Name, ScheduleID(r.spec.Schedule),
				m.Head.At.Timestamp, r.spec.ScheduleKeep); err != nil {
				return err
			}
		}
		if err := r.Cluster.Unprotect(ctx, m.Keyspaces[i].Name, m.Head.ID); err != nil {
			return err
		}
	}
	r.tell("done")
	return nil
}

// sweep removes the data objects that the manifest does not name. A slow worker may add such an
// object later. The object has the prefix of the backup, and is removed together with the backup.
func (r *run) sweep(ctx context.Context, m *manifest.Manifest) error {
	named := make(map[string]bool)
	if m.Coordination != nil {
		for _, name := range m.Coordination.Names {
			named[name] = true
		}
	}
	for i := range m.Done {
		for j := range m.Done[i].Pieces {
			named[m.Done[i].Pieces[j].Name] = true
		}
	}
	var left []string
	for _, prefix := range []string{manifest.PiecePrefix(m.Head.ID),
		manifest.CoordinationPrefix(m.Head.ID)} {
		for object, err := range r.Target.List(ctx, prefix) {
			if err != nil {
				return err
			}
			if !named[object.Name] {
				left = append(left, object.Name)
			}
		}
	}
	for _, name := range append(left, manifest.CheckName(m.Head.ID)) {
		if err := r.Target.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// Cancel removes all objects of an incomplete backup and ends its protection. It may be repeated.
// keyspaces are the names of the keyspaces that may be protected for the backup.
func Cancel(ctx context.Context, id string, cluster Cluster, store target.Target,
	keyspaces []string) error {
	for _, name := range keyspaces {
		if err := cluster.Unprotect(ctx, name, id); err != nil {
			return err
		}
	}
	_, err := catalog.New(store, nil).Delete(ctx, id)
	return err
}
