package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/space"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// The size of the store, and its quota (package space). The meta record has the bytes of all
// versions and events, so that the size costs nothing to know and is the same on all members; data
// of an older version of the program, which did not record it, is summed up once, when it is
// loaded.
//
// Only the leader checks the quota, before it proposes. So members may have different quotas, and
// members of an older version apply what they are given. The command that would cross the quota
// raises the alarm NO_SPACE of the leader, as a member of etcd does.

// raiseTimeout bounds how long a refused command waits for the alarm that it raises.
const raiseTimeout = 5 * time.Second

// Quota bounds the size of a store.
type Quota struct {
	// Bytes is the largest size that puts, leases and imports may take the store to; 0: no bound.
	Bytes uint64
	// Member is the member whose alarm the leader raises when it refuses a command; 0: no alarm.
	Member uint64
}

// SetQuota sets by which quota this member judges while it leads.
func (g *Gate) SetQuota(q Quota) {
	g.alarmOf.Store(q.Member)
	g.space.SetQuota(q.Bytes)
}

// Bytes is the size of the store at this member, as the quota counts it: keys and values of the
// whole history, with what is stored beside each, and leases. It falls when history is compacted.
func (g *Gate) Bytes() uint64 { return g.space.Size() }

// QuotaRoom reports whether the size is above this member's quota, or so far below it that an alarm
// can end. Without a quota there is always room.
func (g *Gate) QuotaRoom() (over, roomy bool) { return g.space.Room() }

// AlarmOver notes that this member has no alarm NO_SPACE (any more): what was refused before does
// not count in QuotaRoom.
func (g *Gate) AlarmOver() { g.space.Forget() }

// Freed returns how many bytes compactions and imports have removed since the process started. The
// disk gets them back some time after (GiveBack).
func (g *Gate) Freed() uint64 { return g.space.Freed() }

// Cost is the most bytes that a command adds; 0 also for what no quota refuses.
func (g *Gate) Cost(c *storepb.Command) (uint64, error) {
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		return g.txnCost(op.Txn)
	case *storepb.Command_LeaseGrant:
		return space.LeaseBytes, nil
	case *storepb.Command_Import:
		cost := uint64(len(op.Import.GetLeases())) * space.LeaseBytes
		for _, v := range op.Import.GetVersions() {
			cost += space.Put(len(v.Key), len(v.Value))
		}
		return cost, nil
	}
	return 0, nil
}

// txnCost is that of the dearer branch.
func (g *Gate) txnCost(t *storepb.Txn) (most uint64, err error) {
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		sum := uint64(0)
		for _, op := range ops {
			cost := uint64(0)
			switch op := op.GetOp().(type) {
			case *storepb.Op_Put:
				cost, err = g.putCost(op.Put)
			case *storepb.Op_Txn:
				cost, err = g.txnCost(op.Txn)
			}
			if err != nil {
				return 0, err
			}
			sum += cost
		}
		most = max(most, sum)
	}
	return most, nil
}

// putCost is the cost of a put. A put that keeps the value of its key costs as much as the present
// value; puts of another value that are under way are not taken into account.
func (g *Gate) putCost(p *storepb.Put) (uint64, error) {
	value := len(p.Value)
	if p.IgnoreValue {
		err := g.store.ReadState(func(r *tables.Reader) error {
			kv, err := r.At(p.Key, r.Meta.Revision)
			value = len(kv.GetValue())
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return space.Put(len(p.Key), value), nil
}

// Reserve admits a command that is about to be proposed, and returns what it has reserved.
func (g *Gate) Reserve(ctx context.Context, c *storepb.Command) (uint64, error) {
	if g.space.Quota() == 0 {
		return 0, nil
	}
	cost, err := g.Cost(c)
	if err != nil || cost == 0 {
		return 0, err
	}
	// Commands that earlier leaders have admitted have to be counted.
	if l, _ := g.store.Leadership(); l.IsLeader && !l.Serving {
		if err := g.store.Confirm(ctx); err != nil {
			return 0, err
		}
	}
	if g.space.Reserve(cost) {
		return cost, nil
	}
	g.raiseNoSpace(ctx)
	return 0, fmt.Errorf("%w: %d bytes would take %s from %d above its quota of %d",
		command.ErrNoSpace,
		cost, g.name, g.space.Size(), g.space.Quota())
}

// raiseNoSpace raises the alarm of this member, unless it is raised. The command is refused whether
// or not that succeeds.
func (g *Gate) raiseNoSpace(ctx context.Context) {
	alarm := &storepb.Alarm{Member: g.alarmOf.Load(), Type: storepb.Alarm_NO_SPACE, Automatic: true}
	if alarm.Member == 0 || !g.MayUse(command.AlarmFormat) {
		return
	}
	for _, a := range g.store.Alarms() {
		if command.AlarmOrder(a, alarm) == 0 {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, raiseTimeout)
	defer cancel()
	_, _ = g.store.DoOwn(ctx, &storepb.Command{Op: &storepb.Command_AlarmChange{
		AlarmChange: &storepb.AlarmChange{Alarm: alarm}}})
}

// Release gives back what a command has reserved that was not applied.
func (g *Gate) Release(bytes uint64) { g.space.Release(bytes) }

// Applied is told that the state has so many bytes of versions and events, after commands were
// applied that had reserved so many and have removed freed bytes.
func (g *Gate) Applied(size, reserved, freed uint64) {
	g.space.Applied(size+uint64(g.lessor.Count())*space.LeaseBytes, reserved, freed)
}

// QuotaBytes is the quota; 0: there is none.
func (g *Gate) QuotaBytes() uint64 { return g.space.Quota() }
