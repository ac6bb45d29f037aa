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

// Spec says which backup a job makes. It does not change while the job lives.
type Spec struct {
	ID   string
	Kind manifest.Kind
	// Parent is the backup that an incremental one continues.
	Parent string
	// Includes says whether a keyspace is in the backup; nil: all are.
	Includes func(name string) bool
	// Recipients can read the backup; none: everybody can.
	Recipients archive.Recipients
	// Identity is one that the job alone has, if the backup is encrypted: a later Run reads the plan
	// and the finished units with it. Pieces and the manifest are not for it.
	Identity archive.Identities
	// Keep bounds for how long the history is protected.
	Keep  time.Duration
	Began time.Time
	// Schedule is the name of the schedule that it is made for; empty: none. The history from the
	// moment on is kept for the schedule's next backup then, for ScheduleKeep at most.
	Schedule     string
	ScheduleKeep time.Duration
}

// Cluster is what a job needs of a cluster. Errors of its methods end a Run, but for those of
// Export. Its methods may be called from several goroutines.
type Cluster interface {
	// Moment fixes the state of the coordination store, and returns it, which the caller closes; nil:
	// the cluster has none. Only then it chooses a timestamp, at or above those of all writes that were
	// acknowledged up to then, and returns when replicas can be read at it. So the coordination store
	// has nothing that was written after something which keyspaces do not have at the timestamp.
	Moment(context.Context) (hlc.Timestamp, Coordination, error)
	// Describe lists the keyspaces and their partitions.
	Describe(context.Context) (*Description, error)
	// Protect keeps what is needed to read a keyspace at, or from, a timestamp, under the name of the
	// backup and for so long at most. It may be repeated. An error that is ErrTooOld: it was
	// collected already.
	Protect(ctx context.Context, keyspace, backup string, from hlc.Timestamp,
		keep time.Duration) error
	// Unprotect ends that. It may be repeated.
	Unprotect(ctx context.Context, keyspace, backup string) error
	// Keep keeps the history of a keyspace from a moment on, for so long at most, under an id. It
	// replaces what the id has kept before. A keyspace that is gone is no error.
	Keep(ctx context.Context, keyspace, id string, from hlc.Timestamp,
		keep time.Duration) error
	// Nodes are the data nodes that can be given units now.
	Nodes(context.Context) ([]keys.NodeID, error)
	// Export has a node write the pieces of a unit. After an error the unit may be given to another
	// node, also if the first one still works on it.
	Export(ctx context.Context, node keys.NodeID, task *Task) (*manifest.Done, error)
}

// Coordination is the state of the coordination store at one revision. It is for one goroutine.
type Coordination interface {
	Revision() int64
	// Copy hands the state over in parts.
	Copy(ctx context.Context, part func([]byte) error) error
	// Changes hands over in parts what has changed since an earlier revision, with leases, users and
	// roles whole, and returns a digest of the latter. An error that is ErrTooOld says that the store
	// does not have the changes since then any more.
	Changes(ctx context.Context, since int64, part func([]byte) error) (digest string, err error)
	Close()
}

// Task is a unit as a node is given it.
type Task struct {
	Plan *manifest.Head
	// Keyspace is that of the unit.
	Keyspace *manifest.Keyspace
	Number   int
	Unit     manifest.Unit
}

// Description is a cluster at one time.
type Description struct {
	Cluster, Version string
	Keyspaces        []Keyspace
	// Settings are those of manifest.Plan.
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
	// ErrTooOld: what would have to be protected was collected.
	ErrTooOld = errors.New("the history of the keyspace since then was collected")
)

// ScheduleID is the id under which history is kept for the next backup of a schedule.
func ScheduleID(schedule string) string { return "schedule-" + schedule }

// Config is what a Run needs. Cluster and Target must be set.
type Config struct {
	Cluster Cluster
	Target  target.Target
	// Random names attempts.
	Random func() uint64
	// Now is the clock for times of day in the description of the backup.
	Now func() time.Time
	// Limits bound the units. Default DefaultUnitLimits.
	Limits manifest.UnitLimits
	// PerNode, Attempts and RetryPause are those of package spread.
	PerNode, Attempts int
	RetryPause        time.Duration
	// Progress is told how far the Run is, by one goroutine at a time; nil: nobody is.
	Progress func(Progress)
}

// DefaultUnitLimits bound a unit to some seconds of work.
var DefaultUnitLimits = manifest.UnitLimits{Bytes: 256 << 20, Partitions: 256}

// Progress is how far a Run is.
type Progress struct {
	// Step is what it does, as a phrase.
	Step        string
	At          hlc.Timestamp
	Done, Units int
	Totals      manifest.Totals
	// Failures are the errors of nodes so far, the last one in words.
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

// run is a Run under way.
type run struct {
	Config
	spec     Spec
	progress Progress
}

// tell tells of progress.
func (r *run) tell(step string) {
	if step != "" {
		r.progress.Step = step
	}
	r.Config.Progress(r.progress)
}

// own are those who can read what only the job reads.
func (r *run) own() archive.Options {
	all := append(archive.Recipients{}, r.spec.Recipients...)
	if len(all) > 0 {
		all = append(all, r.spec.Identity.Recipients()...)
	}
	return archive.Options{Recipients: all}
}

// complete does what is missing up to the manifest.
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

// end makes the backup visible and removes what it does not need.
func (r *run) end(ctx context.Context, m *manifest.Manifest) error {
	r.tell("complete the backup")
	data, err := manifest.Encode(m)
	if err != nil {
		return err
	}
	sealed, _, err := archive.Seal(manifest.ManifestKind, data,
		archive.Options{Recipients: r.spec.Recipients})
	if err != nil {
		return err
	}
	// A manifest of an earlier Run says the same, but for the time at which it ended.
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
		// The history is protected at the moment, and stays so without a gap.
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

// sweep removes the objects with data that the manifest does not name. A worker that is late may
// add one after this; it is below the backup's prefix, and is removed with the backup.
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

// Cancel removes all objects of a backup that is not complete, and ends its protection. It may be
// repeated. keyspaces are the names of those that may be protected for it.
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
