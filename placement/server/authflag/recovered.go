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

// A core that continues from one member may lack the last changes of the other members: ids that
// were given out, changes of this record, and changes of users and roles. The functions below
// ensure that no id is given out twice, and that the record is not older than the copies on
// servers' disks. If the recovered coordination store has authentication disabled, clients of
// keyspaces are permitted nothing until an administrator enables or disables authentication.

const (
	// recoveredIDs is the amount by which ids are raised. recoveredNodes is the smaller amount for ids
	// of nodes, because people type them.
	recoveredIDs   = 1_000_000
	recoveredNodes = 1_000
)

// RecoveredRecords returns the changes that must be made to the core's own store before it
// continues from one member. The store belongs to a stopped member that has applied its whole log.
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

// outruns reports whether a server's copy cannot come from the record up to its present version.
func outruns(mark, record *clusterpb.GuardState) bool {
	return mark.GetVersion() < math.MaxUint64 && (mark.GetVersion() > record.Version ||
		mark.GetVersion() == record.Version && mark.GetOn() != record.On)
}

// Heard returns the record after a server has reported its copy. If the record cannot have produced
// the copy, and the caller proves to be a server, Heard gives the record a later version.
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

// CheckKnows refuses a node that does not know the record and would serve all clients although
// authentication is enabled.
func CheckKnows(record *clusterpb.GuardState, report *clusterpb.GuardReport) error {
	if !record.On || report.GetKnows() {
		return nil
	}
	return status.Error(codes.FailedPrecondition, "authentication is enabled, or being enabled, and "+
		"this server runs a version that knows no users of keyspaces, so it would serve every client: "+
		"upgrade it")
}
