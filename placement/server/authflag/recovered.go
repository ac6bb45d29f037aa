package authflag

import (
	"context"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A core that continues from one member may lack the last changes of the others: ids that were
// given out, the record that servers must follow users and roles, and users and roles themselves.
// So no id is given out again, and the record is no older than the copies on servers' disks. A
// coordination store in which authentication is not enabled permits nothing to clients of keyspaces
// before an administrator has enabled or disabled it.

const (
	// recoveredIDs is the amount by which ids are raised, recoveredNodes that for nodes, whose ids
	// people type.
	recoveredIDs   = 1_000_000
	recoveredNodes = 1_000
)

// RecoveredRecords returns the changes to the core's own store with which it continues from one
// member. The store is that of a stopped member that has applied all of its log.
func RecoveredRecords(core *store.Store) ([]*storepb.Op, error) {
	v := core.Stale()
	ids, _, err := meta.LoadIDs(v)
	if err != nil {
		return nil, err
	}
	ids.Node += recoveredNodes
	ids.Keyspace += min(recoveredIDs, (math.MaxUint32-ids.Keyspace)/2)
	ids.Partition += recoveredIDs
	ids.Operator += recoveredIDs
	ops := []*storepb.Op{store.Put([]byte(meta.IDsKey), meta.Encode(ids)),
		store.Put([]byte(meta.RecoveredKey), []byte{1})}
	guard, _, err := Load(v)
	if err != nil {
		return nil, err
	}
	if guard.On {
		guard.Version += recoveredIDs
		ops = append(ops, store.Put([]byte(meta.GuardKey), meta.Encode(guard)))
	}
	return ops, nil
}

// outruns reports that a mark comes from no version of the record up to this one.
func outruns(mark, record *clusterpb.GuardState) bool {
	return mark.GetVersion() < math.MaxUint64 && (mark.GetVersion() > record.Version ||
		mark.GetVersion() == record.Version && mark.GetOn() != record.On)
}

// Heard returns the record in a view after a server has reported its mark. A mark that the record
// cannot have come to raises the record, if the caller proves to be a server.
func (f *Flag) Heard(
	ctx context.Context, v *store.View, report *clusterpb.GuardReport,
) (*clusterpb.GuardState, error) {
	mark := report.GetGuard()
	record, _, err := Load(v)
	if err != nil || !outruns(mark, record) || f.config.Proves(ctx) != nil {
		return record, err
	}
	v, done, err := f.config.Meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	record, revision, err := Load(v)
	if err != nil || !outruns(mark, record) {
		return record, err
	}
	record.Version, record.On = mark.GetVersion()+1, mark.GetOn() || record.On
	ok, err := f.config.Meta.Commit(ctx,
		[]*storepb.Compare{store.ModifiedAt([]byte(meta.GuardKey), revision)},
		store.Put([]byte(meta.GuardKey), meta.Encode(record)))
	if err == nil && !ok {
		err = meta.Conflict("whether servers follow users and roles")
	}
	if err != nil {
		return nil, err
	}
	f.config.Logger.Warn("a server knows a later change of whether servers follow users and roles "+
		"than the core, which must have lost it", "follow", record.On, "version", record.Version)
	return record, nil
}

// CheckKnows refuses a node that would serve all clients although authentication is enabled.
func CheckKnows(record *clusterpb.GuardState, report *clusterpb.GuardReport) error {
	if !record.On || report.GetKnows() {
		return nil
	}
	return status.Error(codes.FailedPrecondition, "authentication is enabled, or being enabled, and "+
		"this server runs a version that knows no users of keyspaces, so it would serve every client: "+
		"upgrade it")
}
