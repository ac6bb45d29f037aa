package offline

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// stoppedCore is the core's member of a stopped server.
type stoppedCore struct {
	directory *datadir.Directory
	dbs       *datadir.Databases
	log       *raftlog.Log
	state     *bootstrappb.State
	member    *bootstrap.Membership
	core      *stoppedStore
	// coordination is nil if the member has no log of a coordination store.
	coordination *stoppedStore
	opened       []*stoppedStore
}

// stoppedStore is a stopped member's copy of one of the core's stores.
type stoppedStore struct {
	identity raftlog.Identity
	store    *store.Store
	// log is nil if there is no log, or if it was closed.
	log *raftlog.Group
}

// withCore opens the member and calls a function.
func withCore(d *datadir.Directory, do func(*stoppedCore) error) (err error) {
	id := d.Identity()
	if !d.HasDatabase(datadir.Core, "log") || id.Cluster == 0 {
		return fmt.Errorf("%w: %s has no member of the core, or its log is gone",
			datadir.ErrUnusable, d.Path)
	}
	c := &stoppedCore{directory: d}
	disk := bootstrap.FileDisk{FS: d.FS, Dir: d.Sub(datadir.Core)}
	if c.state, err = disk.Load(); err != nil {
		return err
	}
	if c.member = bootstrap.MembershipOf(c.state); c.member == nil {
		return fmt.Errorf("%w: the server of %s is no member of the core", datadir.ErrUnusable, d.Path)
	}
	if c.dbs, err = openDatabases(d, datadir.Core, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.dbs.Close()) }()
	if c.log, err = raftlog.Open(c.dbs.Log,
		raftlog.Options{OnAppended: func([]*raftlog.Append, error) {}}); err != nil {
		return err
	}
	defer c.log.Close()
	defer c.closeStores()
	if err := c.openStores(); err != nil {
		return err
	}
	return do(c)
}

// openStores opens the stores that exist.
func (c *stoppedCore) openStores() error {
	var founding *storepb.Members
	if c.member.Founding != nil {
		founding = membership.StoredMembers(c.member.Founding)
	}
	var err error
	if c.core, err = c.open(keys.CorePartition, founding); err != nil {
		return err
	}
	if c.core == nil {
		return fmt.Errorf("%w: the log of %s has no member of the core", datadir.ErrUnusable,
			c.directory.Path)
	}
	// A member that has a log of the coordination store has the record of its founding in its state,
	// see openCoordination.
	if founding, err = membership.CoordinationFounding(c.core.store); err != nil {
		return err
	}
	self := uint64(c.core.identity.Replica)
	if !slices.ContainsFunc(founding.GetMembers(),
		func(m *storepb.Member) bool { return m.Replica == self }) {
		founding = nil
	}
	c.coordination, err = c.open(keys.CoordinationPartition, founding)
	return err
}

// open opens a store and its log. It returns nil if there is no log.
func (c *stoppedCore) open(id keys.PartitionID, founding *storepb.Members) (*stoppedStore, error) {
	identity, ok, err := c.log.Identity(id)
	if err != nil || !ok || identity.Removed {
		return nil, err
	}
	s, err := c.openStore(identity, founding)
	if err != nil {
		return nil, err
	}
	index, term := s.store.Applied()
	s.log, err = c.log.OpenGroup(identity, func() raftlog.Applied {
		return raftlog.Applied{Index: index, Term: term}
	})
	return s, err
}

// fresh opens a coordination store that has no log.
func (c *stoppedCore) fresh() (*stoppedStore, error) {
	return c.openStore(raftlog.Identity{Group: keys.CoordinationPartition}, nil)
}

func (c *stoppedCore) openStore(identity raftlog.Identity,
	founding *storepb.Members) (*stoppedStore, error) {
	config := store.Config{State: c.dbs.State, Partition: identity.Group, Founding: founding,
		Random: rand.Reader}
	if identity.Group == keys.CoordinationPartition {
		config.Name = "the coordination store"
	}
	opened, err := store.New(config)
	if err != nil {
		return nil, err
	}
	s := &stoppedStore{identity: identity, store: opened}
	c.opened = append(c.opened, s)
	return s, nil
}

func (c *stoppedCore) closeStores() {
	for _, s := range c.opened {
		s.closeLog(c.log)
		s.store.Close()
	}
}

func (s *stoppedStore) closeLog(l *raftlog.Log) {
	if s.log != nil {
		l.CloseGroup(s.log)
		s.log = nil
	}
}

// parts returns the stores that exist.
func (c *stoppedCore) parts() []*stoppedStore {
	if c.coordination == nil {
		return []*stoppedStore{c.core}
	}
	return []*stoppedStore{c.core, c.coordination}
}

// digest returns a digest of the state for which a plan is made.
func (c *stoppedCore) digest() (string, error) {
	var text []byte
	for _, part := range c.parts() {
		e, err := part.ends()
		if err != nil {
			return "", err
		}
		if len(text) > 0 {
			text = append(text, '\n')
		}
		text = fmt.Appendf(text, "%d %d %d %d %d", part.identity.Replica, e.index, e.term, e.setTerm,
			e.vote)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// logEnds describes the last entry of a log, and the stored hard state: the replica's term, and its
// vote in that term. hardTerm is the higher of both terms.
type logEnds struct{ index, term, setTerm, vote, hardTerm uint64 }

// ends reads the end of the log. Without a log the result is zero.
func (s *stoppedStore) ends() (e logEnds, err error) {
	if s.log == nil {
		return e, nil
	}
	hard, _, err := s.log.InitialState()
	if err == nil {
		e.setTerm, e.vote = hard.GetTerm(), hard.GetVote()
		e.index, err = s.log.LastIndex()
	}
	if err == nil {
		e.term, err = s.log.Term(e.index)
	}
	e.hardTerm = max(e.setTerm, e.term)
	return e, err
}

// recovery describes the member's copy of the store; self returns true for the member itself.
func (s *stoppedStore) recovery(self func(keys.ReplicaID) bool) (r StoreRecovery, err error) {
	e, err := s.ends()
	if err != nil {
		return r, err
	}
	r.LastIndex, r.LastTerm = e.index, e.term
	configuration := store.ConfigurationOf(s.store.Members())
	r.Empty = configuration.Empty()
	r.MayLack = r.Empty ||
		configuration.Quorum(func(id keys.ReplicaID) bool { return !self(id) })
	applied, _ := s.store.Applied()
	err = splitrecovery.EachEntry(s.log, applied, e.index, func(e group.Entry) error {
		r.MayLack = r.MayLack || e.Change
		return nil
	})
	return r, err
}

// recover applies all of the log, and makes the server the only member. records, if not nil, adds
// changes to the same step.
func (s *stoppedStore) recover(plan *CoreRecovery, self *storepb.Member,
	records func(*store.Store) ([]*storepb.Op, error),
) error {
	if s.store.Members().GetVersion() >= plan.Version {
		return nil
	}
	if s.log != nil {
		e, err := s.ends()
		if err != nil {
			return err
		}
		applied, _ := s.store.Applied()
		if err := splitrecovery.EachEntry(s.log, applied, e.index, func(e group.Entry) error {
			return s.store.Apply([]group.Entry{e})
		}); err != nil {
			return err
		}
	}
	now := s.store.Members()
	next := &storepb.Members{Version: plan.Version, NextReplica: plan.Replica + 1,
		Members: []*storepb.Member{self}, Removed: slices.Clone(now.GetRemoved())}
	for _, m := range now.GetMembers() {
		if m.Server != self.Server {
			next.Removed = append(next.Removed, m)
		}
	}
	if n := len(next.Removed) - 32; n > 0 {
		next.Removed = next.Removed[n:]
	}
	if now.GetVersion() >= plan.Version || now.GetNextReplica() > plan.Replica {
		return fmt.Errorf("%w: the members of the core are at version %d", ErrCorePlan,
			now.GetVersion())
	}
	var ops []*storepb.Op
	if records != nil {
		var err error
		if ops, err = records(s.store); err != nil {
			return err
		}
	}
	// The state is durable on return, before the log is removed.
	return s.store.Recover(next, ops...)
}
