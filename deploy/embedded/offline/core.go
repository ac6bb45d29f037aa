package offline

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/recovery"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// CoreRecovery is a plan by which the consistent core continues from one member.
type CoreRecovery struct {
	Format  int    `json:"format"`
	ID      string `json:"id"`
	Created string `json:"created"`
	Cluster string `json:"cluster"`
	Server  string `json:"server"`
	// Member is the present replica id of this server in the core. Replica is the id that it will get.
	Member  uint64 `json:"member"`
	Replica uint64 `json:"replica"`
	// Members are the addresses of the core's members, as far as this member knows.
	Members []string `json:"members"`
	// Version is the next version of the record of members.
	Version uint64 `json:"version"`
	// StoreRecovery describes placement's store.
	StoreRecovery
	// Coordination describes the coordination store. It is nil if this member has no part of that
	// store. If the cluster has a coordination store, all of it is lost in that case.
	Coordination *StoreRecovery `json:"coordination,omitempty"`
	Digest       string         `json:"digest"`
	Checksum     string         `json:"checksum"`
}

// StoreRecovery describes a member's copy of one of the core's stores.
type StoreRecovery struct {
	// LastIndex and LastTerm describe the last entry of its log.
	LastIndex uint64 `json:"last_index"`
	LastTerm  uint64 `json:"last_term"`
	// MayLack is set if acknowledged changes may be missing.
	MayLack bool `json:"may_lack"`
	// Empty is set if the member has no data, because it was not filled yet.
	Empty bool `json:"empty,omitempty"`
}

// ErrCorePlan is wrapped by errors which say that a plan does not fit the directory.
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

// Check returns an error if a plan that was read cannot be used.
func (p *CoreRecovery) Check() error {
	if p.Format != recovery.Format || p.ID == "" || p.Checksum != p.sum() {
		return fmt.Errorf("%w: it has another format, was changed, or is not complete; make it anew",
			ErrCorePlan)
	}
	return nil
}

// PlanCoreRecovery makes a plan by which the core continues from the member of a stopped server. It
// changes nothing.
func PlanCoreRecovery(fs vfs.FS, path string, random func() uint64) (p *CoreRecovery, err error) {
	d, err := openStopped(fs, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	records, err := d.Recoveries()
	if err == nil && records.Begun != nil {
		err = fmt.Errorf("%w: plan %s is being carried out in %s: bring it to its end first",
			datadir.ErrUnusable, records.Begun.Plan, path)
	}
	if err != nil {
		return nil, err
	}
	err = withCore(d, func(c *stoppedCore) error {
		p, err = c.plan(random)
		return err
	})
	return p, err
}

// plan makes a plan by which the core continues from this member.
func (c *stoppedCore) plan(random func() uint64) (*CoreRecovery, error) {
	id := c.directory.Identity()
	p := &CoreRecovery{Format: recovery.Format, ID: datadir.HexID(random()).String(),
		Created: time.Now().UTC().Format(time.RFC3339), Cluster: id.Cluster.String(),
		Server: id.Server.String(), Member: uint64(c.core.identity.Replica)}
	self := func(r keys.ReplicaID) bool { return uint64(r) == p.Member }
	p.Replica = p.Member + 1
	alone := true
	for _, part := range c.parts() {
		members := part.store.Members()
		p.Version = max(p.Version, members.GetVersion())
		p.Replica = max(p.Replica, members.GetNextReplica())
		for _, m := range members.GetMembers() {
			p.Replica = max(p.Replica, m.Replica+1)
		}
		configuration := store.ConfigurationOf(members)
		alone = alone && configuration.Quorum(self)
	}
	p.Version += recovery.MembershipStep
	p.Replica += recovery.MembershipStep
	for _, m := range c.core.store.Members().GetMembers() {
		p.Members = append(p.Members, m.Address)
	}
	configuration := store.ConfigurationOf(c.core.store.Members())
	if configuration.Role(keys.ReplicaID(p.Member)) == 0 {
		return nil, fmt.Errorf("%w: the server of %s is no member of the core that it knows, or was "+
			"never filled", datadir.ErrUnusable, c.directory.Path)
	}
	if alone {
		return nil, fmt.Errorf("%w: this member decides alone", ErrNothingToRecover)
	}
	var err error
	if p.StoreRecovery, err = c.core.recovery(self); err != nil {
		return nil, err
	}
	if c.coordination != nil {
		r, err := c.coordination.recovery(self)
		if err != nil {
			return nil, err
		}
		p.Coordination = &r
	}
	if p.Digest, err = c.digest(); err != nil {
		return nil, err
	}
	p.Checksum = p.sum()
	return p, nil
}

// ApplyCoreRecovery makes the member of a stopped server the only member of the core. It can be
// interrupted at any moment, and must then be called again with the same plan. Until then the
// server does not start. done reports that it was completed earlier.
func ApplyCoreRecovery(fs vfs.FS, path string, plan *CoreRecovery) (done bool, err error) {
	if err := plan.Check(); err != nil {
		return false, err
	}
	d, err := openStopped(fs, path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	records, err := d.Recoveries()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(records.Done,
		func(r datadir.RecoveryRecord) bool { return r.Plan == plan.ID }) {
		return true, nil
	}
	started := records.Begun != nil
	id := d.Identity()
	switch {
	case started && records.Begun.Plan != plan.ID:
		return false, fmt.Errorf("%w: plan %s was begun in %s, and is not done: go on with that one",
			datadir.ErrUnusable, records.Begun.Plan, path)
	case plan.Server != id.Server.String() || plan.Cluster != id.Cluster.String():
		return false, fmt.Errorf("%w: it was made of another server's directory", ErrCorePlan)
	}
	err = withCore(d, func(c *stoppedCore) error {
		if !started {
			digest, err := c.digest()
			if err != nil {
				return err
			}
			if digest != plan.Digest {
				return fmt.Errorf("%w: the server has run since it was made; make it anew", ErrCorePlan)
			}
			begun := datadir.RecoveryRecord{Plan: plan.ID, Time: time.Now().UTC(), Core: true}
			if plan.MayLack || plan.Coordination == nil || plan.Coordination.MayLack {
				begun.MayLack = 1
			}
			records.Begun = &begun
			if err := d.SetRecoveries(records); err != nil {
				return err
			}
		}
		return c.recover(plan)
	})
	if err != nil {
		return false, err
	}
	records.Done, records.Begun = append(records.Done, *records.Begun), nil
	return false, d.SetRecoveries(records)
}

// recover does the remaining steps: the states, then the logs, then this server's membership.
func (c *stoppedCore) recover(plan *CoreRecovery) error {
	id := c.directory.Identity()
	self := &storepb.Member{Replica: plan.Replica, Server: uint64(id.Server),
		Address: c.state.GetAddress()}
	if err := c.core.recover(plan, self, authflag.RecoveredRecords); err != nil {
		return err
	}
	// Without a log, the founding may be known only now.
	if c.coordination == nil {
		founding, err := membership.CoordinationFounding(c.core.store)
		if err != nil {
			return err
		}
		if founding != nil {
			if c.coordination, err = c.fresh(); err != nil {
				return err
			}
		}
	}
	if c.coordination != nil {
		if err := c.coordination.recover(plan, self, nil); err != nil {
			return err
		}
	}
	if err := c.rewriteLogs(keys.ReplicaID(plan.Replica)); err != nil {
		return err
	}
	c.state.Proposed, c.state.Replica = nil, plan.Replica
	c.state.Joined = &bootstrappb.Founding{Cluster: uint64(id.Cluster),
		Members: []*bootstrappb.Member{
			{Address: self.Address, Replica: self.Replica, Server: self.Server}}}
	return bootstrap.FileDisk{FS: c.directory.FS, Dir: c.directory.Sub("core")}.Store(c.state)
}

// rewriteLogs begins both logs again, as those of another replica, after the last index of the
// states. If the coordination store's log does not exist, it is created first: after a power
// failure in between, it exists the next time, and is written again.
func (c *stoppedCore) rewriteLogs(replica keys.ReplicaID) error {
	if c.core.identity.Replica == replica {
		return nil
	}
	var rewrites []raftlog.Rewrite
	for _, part := range c.parts() {
		identity := raftlog.Identity{Group: part.identity.Group, Replica: replica}
		if part.log == nil {
			if err := c.log.Create(identity); err != nil {
				return err
			}
		}
		e, err := part.ends()
		if err != nil {
			return err
		}
		// All of the log is applied.
		index, term := part.store.Applied()
		rewrites = append(rewrites, raftlog.Rewrite{Identity: identity, Index: index, Term: term,
			HardTerm: max(e.hardTerm, term) + 1})
	}
	for _, part := range c.parts() {
		part.closeLog(c.log)
	}
	return c.log.Rewrite(rewrites...)
}
