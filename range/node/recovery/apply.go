package recovery

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ErrPlan is wrapped by errors that report that a plan does not fit the data.
var ErrPlan = errors.New("the plan does not fit")

// Outcome says what Apply did on one node.
type Outcome struct {
	// Recovered counts partitions that continue here, Retired those that continue elsewhere.
	Recovered, Retired int
	// Done is set if everything was done before.
	Done bool
}

// work is the work on one replica.
type work struct {
	*Recovery
	identity raftlog.Identity
	// goesOn is set if the partition continues from this replica.
	goesOn bool
	// renamed is set if its log was rewritten before.
	renamed bool
	// old is its replica id before, digest its digest in the survey.
	old    uint64
	digest string
}

// Check reports whether a plan can be carried out on a node, and changes nothing. started is set if
// Apply was called with the plan before, and may not have completed.
func Check(d Directory, p *Plan, started bool) error {
	return d.withLog(func(here *splitrecovery.Directory, identities []raftlog.Identity) error {
		_, err := d.works(here, identities, p, started)
		return err
	})
}

// Apply carries out a plan on a node. After an error, or a crash, it has to be called again with
// the same plan and with started set, until it returns nil; before that nothing else may use the
// data.
func Apply(d Directory, p *Plan, started bool) (*Outcome, error) {
	outcome := &Outcome{}
	err := d.withLog(func(here *splitrecovery.Directory, identities []raftlog.Identity) error {
		works, err := d.works(here, identities, p, started)
		if err != nil {
			return err
		}
		outcome.Done = !slices.ContainsFunc(works, func(w work) bool { return !w.renamed })
		for _, w := range works {
			if w.goesOn {
				outcome.Recovered++
			} else {
				outcome.Retired++
			}
		}
		return d.carryOut(here, identities, works)
	})
	return outcome, err
}

// works compares a plan with the replicas of a node.
func (d *Directory) works(here *splitrecovery.Directory, identities []raftlog.Identity, p *Plan,
	started bool) ([]work, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	if p.Cluster != hexID(d.Cluster) {
		return nil, fmt.Errorf("%w: it is for cluster %s, and this is a node of %s", ErrPlan, p.Cluster,
			hexID(d.Cluster))
	}
	if !slices.Contains(p.Survivors, uint64(d.Node)) {
		return nil, fmt.Errorf("%w: this is node %d, and it is made of nodes %v", ErrPlan, d.Node,
			p.Survivors)
	}
	at := make(map[uint64]raftlog.Identity, len(identities))
	for _, id := range identities {
		at[uint64(id.Group)] = id
	}
	var works []work
	for i := range p.Recovered {
		w := work{Recovery: &p.Recovered[i], identity: at[p.Recovered[i].Partition]}
		if w.Node == uint64(d.Node) {
			w.goesOn, w.old, w.digest = true, w.OldReplica, w.Recovery.Digest
		} else if o := slices.IndexFunc(w.Others, func(o Other) bool {
			return o.Node == uint64(d.Node)
		}); o >= 0 {
			w.old, w.digest = w.Others[o].Replica, w.Others[o].Digest
		} else {
			continue
		}
		done, err := d.compare(here, &w, started)
		if err != nil {
			return nil, fmt.Errorf("%w: partition %d: %w", ErrPlan, w.Partition, err)
		}
		w.renamed = done
		works = append(works, w)
	}
	return works, nil
}

// compare checks that a replica is as the survey found it, or that the plan was carried out on it.
func (d *Directory) compare(here *splitrecovery.Directory, w *work, started bool) (done bool,
	err error) {
	recorded, found, err := storage.ReadRecorded(d.State, keys.PartitionID(w.Partition))
	if err != nil {
		return false, err
	}
	replaced := found && recorded.Descriptor.GetMembership() >= w.Membership
	switch now := uint64(w.identity.Replica); {
	case replaced && !w.goesOn && (now == 0 || now != w.old):
		return true, nil // the replica was removed since
	case replaced && w.goesOn && now == w.Replica:
		return true, nil
	case !found && now == 0 && started:
		if !w.goesOn {
			return true, nil
		}
		// The call before may have applied a merge that has made the partition a part of another one.
		id, known, err := here.Log.Identity(keys.PartitionID(w.Partition))
		if err == nil && known {
			done, err = here.WasSubsumed(id)
		}
		if err == nil && !done {
			err = errors.New("its replica here is gone")
		}
		return done, err
	case now != w.old:
		return false, fmt.Errorf("its replica here is %d, and was %d when the plan was made",
			now, w.old)
	case replaced && !started:
		return false, fmt.Errorf("its membership is %d, and another recovery has raised it",
			recorded.Descriptor.GetMembership())
	}
	r := readReplica(here, w.identity)
	if r.Broken != "" {
		return false, errors.New(r.Broken)
	}
	if r.Digest != w.digest {
		if started && replaced && !w.goesOn {
			return true, nil // its log was rewritten
		}
		return false, fmt.Errorf("its replica here has changed since the plan was made: the server " +
			"has run; make the plan anew")
	}
	return false, nil
}

// carryOut does what is not done yet.
func (d *Directory) carryOut(here *splitrecovery.Directory, identities []raftlog.Identity,
	works []work) error {
	todo := slices.DeleteFunc(slices.Clone(works), func(w work) bool { return w.renamed })
	if len(todo) == 0 {
		return nil
	}
	shared, err := d.shared(here.Log)
	if err != nil {
		return err
	}
	defer shared.Pool.Close()
	defer shared.Long.Close()
	here.Open = func(id raftlog.Identity) (*replica.Replica, error) { return d.open(id, shared) }
	shared.Siblings = merging{siblings{log: here.Log, state: d.State}, here}
	// A crash may have taken back the bases of children of splits. They are made again first, as a
	// server does when it starts. Replicas that no plan names may fail here as they would there.
	lost := map[keys.PartitionID]error{}
	here.Restore(identities, func(id raftlog.Identity, err error) { lost[id.Group] = err })
	var descriptors []*clusterpb.Partition
	var rewrites []raftlog.Rewrite
	for i := range todo {
		w := &todo[i]
		if err := lost[w.identity.Group]; err != nil {
			return fmt.Errorf("partition %d: %w", w.Partition, err)
		}
		if here.IsSubsumed(w.identity) {
			continue
		}
		descriptor, rewrite, err := d.bringUp(here.Log, w, shared)
		if err != nil {
			return fmt.Errorf("partition %d: %w", w.Partition, err)
		}
		descriptors = append(descriptors, descriptor)
		rewrites = append(rewrites, rewrite)
	}
	// A partition that a log has merged into this one continues as a part of it.
	consumed := here.Subsumed()
	gone := func(id keys.PartitionID) bool {
		return slices.ContainsFunc(consumed, func(c raftlog.Identity) bool { return c.Group == id })
	}
	descriptors = slices.DeleteFunc(descriptors,
		func(p *clusterpb.Partition) bool { return gone(keys.PartitionID(p.Id)) })
	rewrites = slices.DeleteFunc(rewrites,
		func(r raftlog.Rewrite) bool { return gone(r.Identity.Group) })
	if err := storage.ReplaceDescriptors(d.State, descriptors...); err != nil {
		return err
	}
	// INVARIANT: the state is durable before the logs are removed from which it was made.
	if err := d.State.Flush(); err != nil {
		return err
	}
	if len(consumed) > 0 {
		if err := here.Log.Remove(consumed...); err != nil {
			return err
		}
	}
	return here.Log.Rewrite(rewrites...)
}

// open opens a replica that only applies.
func (d *Directory) open(id raftlog.Identity, shared *replica.Node) (*replica.Replica, error) {
	founded := &clusterpb.Partition{}
	if err := proto.Unmarshal(id.Descriptor, founded); err != nil {
		return nil, fmt.Errorf("its descriptor in the raft log: %w", err)
	}
	return replica.New(replica.Config{Partition: founded, ReplicaID: id.Replica, State: d.State,
		Group: splitrecovery.Idle{}, Node: shared, Empty: len(id.Voters) == 0, GCWindow: -1})
}

// bringUp applies a replica's log, and gives it its new descriptor and log. Of a replica that does
// not go on, only the entries that are known to be committed are applied: the replica that goes on
// may lack later entries, and a split or a merge among them would change other partitions here.
func (d *Directory) bringUp(log *raftlog.Log, w *work, shared *replica.Node) (
	*clusterpb.Partition, raftlog.Rewrite, error) {
	fail := func(err error) (*clusterpb.Partition, raftlog.Rewrite, error) {
		return nil, raftlog.Rewrite{}, err
	}
	r, err := d.open(w.identity, shared)
	if err != nil {
		return fail(err)
	}
	defer r.Close()
	index, term := r.Applied()
	g, err := log.OpenGroup(w.identity, func() raftlog.Applied {
		return raftlog.Applied{Index: index, Term: term}
	})
	if err != nil {
		return fail(err)
	}
	defer log.CloseGroup(g)
	hard, _, err := g.InitialState()
	if err != nil {
		return fail(err)
	}
	last, err := g.LastIndex()
	if err != nil {
		return fail(err)
	}
	if !w.goesOn {
		last = min(last, hard.GetCommit())
	}
	if r.Descriptor().GetMembership() < w.Membership {
		if err := splitrecovery.EachPiece(g, index, last, r.Apply); err != nil {
			return fail(err)
		}
	}
	index, term = r.Applied()
	next := proto.Clone(r.Descriptor()).(*clusterpb.Partition)
	if next.Membership > w.Membership {
		return fail(fmt.Errorf("%w: its membership is %d", ErrPlan, next.Membership))
	}
	next.Membership, next.WantedLeader = w.Membership, 0
	next.NextReplica = w.Replica + 1
	next.Replicas = []*clusterpb.Replica{{Node: w.Node, Replica: w.Replica}}
	rewrite := raftlog.Rewrite{Identity: w.identity, Index: index, Term: term,
		HardTerm: max(hard.GetTerm(), term) + 1}
	if w.goesOn {
		value, err := proto.Marshal(next)
		if err != nil {
			return fail(err)
		}
		rewrite.Identity = raftlog.Identity{Group: w.identity.Group, Replica: keys.ReplicaID(w.Replica),
			Descriptor: value}
	}
	return next, rewrite, nil
}

// shared returns what replicas need of a node; nothing of it contacts another node.
func (d *Directory) shared(log *raftlog.Log) (*replica.Node, error) {
	n := &replica.Node{Node: config.Node{Clock: hlc.NewClock(nil, nil), Logger: d.Logger},
		Siblings: siblings{log: log, state: d.State}}
	return n, n.Prepare()
}

// siblings says what the directory has of the children of splits.
type siblings struct {
	replica.NoSiblings
	log   *raftlog.Log
	state *engine.State
}

// ChildState implements replica.Siblings.
func (s siblings) ChildState(child *clusterpb.Partition,
	self keys.ReplicaID) (reshape.ChildState, error) {
	return splitrecovery.StateOf(s.log, s.state, child, self)
}

// merging are siblings, and the replicas of the directory that others consume.
type merging struct {
	siblings
	here *splitrecovery.Directory
}

// Right implements replica.Siblings.
func (m merging) Right(right *clusterpb.Partition, _ uint64) (replica.Right, error) {
	return m.here.Right(right)
}
