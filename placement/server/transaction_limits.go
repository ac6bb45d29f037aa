package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// setTransactionDefaults fills in the limits that a new keyspace does not name, so that they stay
// what they are if another version has other defaults.
func setTransactionDefaults(ks *clusterpb.Keyspace) {
	if ks.TxnMaxAgeMillis == 0 {
		ks.TxnMaxAgeMillis = uint64(keys.DefaultTransactionAge / time.Millisecond)
	}
	if ks.TxnMaxIdleMillis == 0 {
		ks.TxnMaxIdleMillis = uint64(keys.DefaultTransactionIdle / time.Millisecond)
	}
}

// validateTransactionLimits checks limits in milliseconds; 0 is none given.
func validateTransactionLimits(age, idle uint64) error {
	const least, most = uint64(keys.MinTransactionLimit / time.Millisecond),
		uint64(keys.MaxTransactionLimit / time.Millisecond)
	for _, l := range [...]struct {
		what   string
		millis uint64
	}{{"age", age}, {"idle time", idle}} {
		if l.millis != 0 && (l.millis < least || l.millis > most) {
			return status.Errorf(codes.InvalidArgument,
				"a maximum %s of transactions of %d ms; it is from %d to %d ms", l.what, l.millis, least, most)
		}
	}
	return nil
}

// AlterKeyspace changes settings of a keyspace. Only the leader does it.
func (s *Server) AlterKeyspace(
	ctx context.Context, r *clusterpb.AlterKeyspaceRequest,
) (*clusterpb.AlterKeyspaceResponse, error) {
	if err := validateTransactionLimits(r.TxnMaxAgeMillis, r.TxnMaxIdleMillis); err != nil {
		return nil, err
	}
	done, err := s.takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	ks, err := s.keyspaceByName(v, r.Name)
	if err != nil {
		return nil, err
	}
	if r.TxnMaxAgeMillis != 0 {
		ks.TxnMaxAgeMillis = r.TxnMaxAgeMillis
	}
	if r.TxnMaxIdleMillis != 0 {
		ks.TxnMaxIdleMillis = r.TxnMaxIdleMillis
	}
	ok, err := s.commit(ctx,
		[]*storepb.Compare{store.ModifiedAt(keyspaceKey(ks.id()), ks.revision)},
		store.Put(keyspaceKey(ks.id()), encode(ks.Keyspace)))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errConflict("keyspace " + r.Name)
	}
	s.config.Logger.Info("keyspace is altered", "keyspace", r.Name, "id", ks.id(),
		"txn_max_age_ms", ks.TxnMaxAgeMillis, "txn_max_idle_ms", ks.TxnMaxIdleMillis)
	return &clusterpb.AlterKeyspaceResponse{Keyspace: ks.Keyspace}, nil
}
