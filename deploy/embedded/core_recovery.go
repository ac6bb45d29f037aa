package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/birth"
	"github.com/tidemarkdb/tidemark/range/node/recovery"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// CoreRecovery says how the consistent core goes on from one member.
type CoreRecovery struct {
	Format  int    `json:"format"`
	ID      string `json:"id"`
	Created string `json:"created"`
	Cluster string `json:"cluster"`
	Server  string `json:"server"`
	// Member is the replica id that this server has in the core, Replica the one that it gets.
	Member  uint64 `json:"member"`
	Replica uint64 `json:"replica"`
	// Members are the core's, as this one knows them; their addresses.
	Members []string `json:"members"`
	// Version is what the record of members gets.
	Version uint64 `json:"version"`
	// LastIndex and LastTerm are of the last entry of its log.
	LastIndex uint64 `json:"last_index"`
	LastTerm  uint64 `json:"last_term"`
	// MayLack says that changes may be missing that were acknowledged.
	MayLack  bool   `json:"may_lack"`
	Digest   string `json:"digest"`
	Checksum string `json:"checksum"`
}

// ErrCorePlan is wrapped by errors that say that a plan is not for what is there.
var ErrCorePlan = recovery.ErrPlan

func (p *CoreRecovery) sum() string {
	plain := *p
	plain.Checksum = ""
	b, err := json.Marshal(&plain)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Check says why a plan that was read cannot be used; nil if it can.
func (p *CoreRecovery) Check() error {
	if p.Format != recovery.Format || p.ID == "" || p.Checksum != p.sum() {
		return fmt.Errorf("%w: it has another format, was changed, or is not complete; make it anew",
			ErrCorePlan)
	}
	return nil
}

// stoppedCore is the core's member of a server that does not run.
type stoppedCore struct {
	directory *directory
	dbs       *databases
	log       *raftlog.Log
	identity  raftlog.Identity
	state     *bootstrappb.State
	store     *store.Store
	group     *raftlog.Group
	member    *bootstrap.Membership
}

// withCore opens it and calls a function.
func withCore(d *directory, do func(*stoppedCore) error) (err error) {
	id := d.identity()
	if !d.hasDatabase(RoleCore, "log") || id.Cluster == 0 {
		return fmt.Errorf("%w: %s has no member of the core, or its log is gone", ErrDirectory, d.path)
	}
	c := &stoppedCore{directory: d}
	disk := bootstrap.FileDisk{FS: d.fs, Dir: d.sub(RoleCore)}
	if c.state, err = disk.Load(); err != nil {
		return err
	}
	if c.member = bootstrap.MembershipOf(c.state); c.member == nil {
		return fmt.Errorf("%w: the server of %s is no member of the core", ErrDirectory, d.path)
	}
	leaving := make(chan struct{})
	close(leaving)
	config := &ServerConfig{Dir: d.path, Logger: slog.New(slog.DiscardHandler), FS: d.fs,
		Roles: []string{RoleCore}}
	if c.dbs, err = openDatabases(config, d, RoleCore, coreMemTableBytes, nil, prometheus.NewRegistry(),
		func(error) {}, leaving); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.dbs.close()) }()
	if c.log, err = raftlog.Open(c.dbs.log,
		raftlog.Options{OnAppended: func([]*raftlog.Append, error) {}}); err != nil {
		return err
	}
	defer c.log.Close()
	all, err := c.log.Identities()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(x raftlog.Identity) bool { return x.Group == coreGroup && !x.Removed })
	if at < 0 {
		return fmt.Errorf("%w: the log of %s has no member of the core", ErrDirectory, d.path)
	}
	c.identity = all[at]
	var founding *storepb.Members
	if c.member.Founding != nil {
		founding = server.StoredMembers(c.member.Founding)
	}
	if c.store, err = store.New(store.Config{State: c.dbs.state, Founding: founding,
		Random: randomReader(func() uint64 { return uint64(id.Server) })}); err != nil {
		return err
	}
	defer c.store.Close()
	index, term := c.store.Applied()
	if c.group, err = c.log.OpenGroup(c.identity, func() raftlog.Applied {
		return raftlog.Applied{Index: index, Term: term}
	}); err != nil {
		return err
	}
	defer c.log.CloseGroup(c.group)
	return do(c)
}

// ends is the last entry of the log, and a digest of what a plan counts on.
func (c *stoppedCore) ends() (index, term, hardTerm uint64, digest string, err error) {
	hard, _, err := c.group.InitialState()
	if err == nil {
		index, err = c.group.LastIndex()
	}
	if err == nil {
		term, err = c.group.Term(index)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %d %d", c.identity.Replica, index, term,
		hard.GetTerm(), hard.GetVote()))
	return index, term, max(hard.GetTerm(), term), hex.EncodeToString(sum[:8]), err
}

// PlanCoreRecovery plans how the core goes on from the member of a server that does not run. It
// changes nothing.
func PlanCoreRecovery(fs vfs.FS, path string, random func() uint64) (p *CoreRecovery, err error) {
	d, err := openStopped(fs, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	records, err := d.readRecoveries()
	if err == nil && records.Begun != nil {
		err = fmt.Errorf("%w: plan %s is being carried out in %s: bring it to its end first",
			ErrDirectory, records.Begun.Plan, path)
	}
	if err != nil {
		return nil, err
	}
	err = withCore(d, func(c *stoppedCore) error {
		id := d.identity()
		members := c.store.Members()
		p = &CoreRecovery{Format: recovery.Format, ID: hexID(random()).String(),
			Created: time.Now().UTC().Format(time.RFC3339), Cluster: id.Cluster.String(),
			Server: id.Server.String(), Member: uint64(c.identity.Replica),
			Version: members.GetVersion() + recovery.MembershipStep}
		p.Replica = max(members.GetNextReplica(), p.Member+1)
		for _, m := range members.GetMembers() {
			p.Members = append(p.Members, m.Address)
			p.Replica = max(p.Replica, m.Replica+1)
		}
		p.Replica += recovery.MembershipStep
		self := func(r keys.ReplicaID) bool { return uint64(r) == p.Member }
		configuration := store.ConfigurationOf(members)
		if configuration.Role(keys.ReplicaID(p.Member)) == 0 {
			return fmt.Errorf("%w: the server of %s is no member of the core that it knows, or was never "+
				"filled", ErrDirectory, path)
		}
		if configuration.Quorum(self) {
			return fmt.Errorf("%w: this member decides alone", ErrNothingToRecover)
		}
		p.MayLack = configuration.Quorum(func(r keys.ReplicaID) bool { return !self(r) })
		var err error
		if p.LastIndex, p.LastTerm, _, p.Digest, err = c.ends(); err != nil {
			return err
		}
		applied, _ := c.store.Applied()
		err = birth.EachEntry(c.group, applied, p.LastIndex, func(e group.Entry) error {
			p.MayLack = p.MayLack || e.Change
			return nil
		})
		p.Checksum = p.sum()
		return err
	})
	return p, err
}

// ApplyCoreRecovery makes the member of a server that does not run the only one of the core. It can
// be interrupted at any moment, and is then to be called again with the same plan: the server does
// not start before. It says whether it was done before.
func ApplyCoreRecovery(fs vfs.FS, path string, plan *CoreRecovery) (done bool, err error) {
	if err := plan.Check(); err != nil {
		return false, err
	}
	d, err := openStopped(fs, path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	records, err := d.readRecoveries()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(records.Done, func(r recoveryRecord) bool { return r.Plan == plan.ID }) {
		return true, nil
	}
	started := records.Begun != nil
	id := d.identity()
	switch {
	case started && records.Begun.Plan != plan.ID:
		return false, fmt.Errorf("%w: plan %s was begun in %s, and is not done: go on with that one",
			ErrDirectory, records.Begun.Plan, path)
	case plan.Server != id.Server.String() || plan.Cluster != id.Cluster.String():
		return false, fmt.Errorf("%w: it was made of another server's directory", ErrCorePlan)
	}
	err = withCore(d, func(c *stoppedCore) error {
		if !started {
			_, _, _, digest, err := c.ends()
			if err != nil {
				return err
			}
			if digest != plan.Digest {
				return fmt.Errorf("%w: the server has run since it was made; make it anew", ErrCorePlan)
			}
			begun := recoveryRecord{Plan: plan.ID, Time: time.Now().UTC(), Core: true}
			if plan.MayLack {
				begun.MayLack = 1
			}
			records.Begun = &begun
			if err := d.writeRecoveries(records); err != nil {
				return err
			}
		}
		return c.recover(plan)
	})
	if err != nil {
		return false, err
	}
	records.Done, records.Begun = append(records.Done, *records.Begun), nil
	return false, d.writeRecoveries(records)
}

// recover does what is not done yet: the state, then the log, then which member this server is.
func (c *stoppedCore) recover(plan *CoreRecovery) error {
	last, term, hardTerm, _, err := c.ends()
	if err != nil {
		return err
	}
	id := c.directory.identity()
	self := &storepb.Member{Replica: plan.Replica, Server: uint64(id.Server), Address: c.state.GetAddress()}
	if c.store.Members().GetVersion() < plan.Version {
		applied, _ := c.store.Applied()
		if err := birth.EachEntry(c.group, applied, last, func(e group.Entry) error {
			return c.store.Apply([]group.Entry{e})
		}); err != nil {
			return err
		}
		now := c.store.Members()
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
			return fmt.Errorf("%w: the members of the core are at version %d", ErrCorePlan, now.GetVersion())
		}
		// It is durable when it returns, before the log goes.
		if err := c.store.Recover(next); err != nil {
			return err
		}
	}
	if c.identity.Replica != keys.ReplicaID(plan.Replica) {
		c.log.CloseGroup(c.group)
		if err := c.log.Rewrite(raftlog.Rewrite{
			Identity: raftlog.Identity{Group: coreGroup, Replica: keys.ReplicaID(plan.Replica)},
			Index:    last, Term: term, HardTerm: hardTerm + 1}); err != nil {
			return err
		}
	}
	c.state.Proposed, c.state.Replica = nil, plan.Replica
	c.state.Joined = &bootstrappb.Founding{Cluster: uint64(id.Cluster), Members: []*bootstrappb.Member{
		{Address: self.Address, Replica: self.Replica, Server: self.Server}}}
	return bootstrap.FileDisk{FS: c.directory.fs, Dir: c.directory.sub(RoleCore)}.Store(c.state)
}
