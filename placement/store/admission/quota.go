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
// versions and events, so the size is always known, and the same on all members. Data of an older
// version of the program, which did not record the size, is summed up once, when it is loaded.
//
// Only the leader checks the quota, before it proposes. So members may have different quotas, and
// members of an older version apply the admitted commands. The command that would cross the quota
// raises the alarm NO_SPACE of the leader, as a member of etcd does.

// raiseTimeout bounds how long a refused command waits for the alarm that it raises.
const raiseTimeout = 5 * time.Second

// Quota bounds the size of a store.
type Quota struct {
	// Bytes is the size up to which puts, leases and imports may grow the store; 0 means no bound.
	Bytes uint64
	// Member is the member under whose id the leader raises the alarm when it refuses a command; 0
	// means no alarm.
	Member uint64
}

// SetQuota sets the quota that this member applies while it leads.
func (g *Gate) SetQuota(q Quota) {
	g.alarmOf.Store(q.Member)
	g.space.SetQuota(q.Bytes)
}

// Bytes is the size of the store at this member, as the quota counts it: the keys and values of the
// whole history, with their records, and the leases. It falls when history is compacted.
func (g *Gate) Bytes() uint64 { return g.space.Size() }

// QuotaRoom reports whether the size is above this member's quota, or so far below it that an alarm
// can end. Without a quota there is always room.
func (g *Gate) QuotaRoom() (over, roomy bool) { return g.space.Room() }

// AlarmOver is called when this member has no alarm NO_SPACE any more. From then on QuotaRoom
// disregards earlier refusals.
func (g *Gate) AlarmOver() { g.space.Forget() }

// Freed returns how many bytes compactions and imports have removed since the process started. The
// disk space becomes free later (GiveBack).
func (g *Gate) Freed() uint64 { return g.space.Freed() }

// Cost is the most bytes that a command may add; 0 for commands that no quota refuses.
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

// txnCost is the cost of the more expensive branch.
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
// value; pending puts of other values are not taken into account.
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

// Reserve admits a command that is about to be proposed, and returns the reserved bytes.
func (g *Gate) Reserve(ctx context.Context, c *storepb.Command) (uint64, error) {
	if g.space.Quota() == 0 {
		return 0, nil
	}
	cost, err := g.Cost(c)
	if err != nil || cost == 0 {
		return 0, err
	}
	// Commands that earlier leaders admitted have to be applied, and so counted, first.
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
// or not the alarm is raised.
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

// Release returns the reserved bytes of a command that is not applied.
func (g *Gate) Release(bytes uint64) { g.space.Release(bytes) }

// Applied records the new size of versions and events, after commands were applied that had
// reserved `reserved` bytes and removed `freed` bytes.
func (g *Gate) Applied(size, reserved, freed uint64) {
	g.space.Applied(size+uint64(g.lessor.Count())*space.LeaseBytes, reserved, freed)
}

// QuotaBytes is the quota; 0 without one.
func (g *Gate) QuotaBytes() uint64 { return g.space.Quota() }
