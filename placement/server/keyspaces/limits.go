package keyspaces

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// setTransactionDefaults fills in the limits that the creation of a keyspace does not give. The
// stored limits do not change when a later version has other defaults.
func setTransactionDefaults(ks *clusterpb.Keyspace) {
	if ks.TxnMaxAgeMillis == 0 {
		ks.TxnMaxAgeMillis = uint64(keys.DefaultTransactionAge / time.Millisecond)
	}
	if ks.TxnMaxIdleMillis == 0 {
		ks.TxnMaxIdleMillis = uint64(keys.DefaultTransactionIdle / time.Millisecond)
	}
}

// checkQuotas refuses quotas that a keyspace cannot have. It refuses all quotas while the level of
// the cluster still admits servers that do not enforce quotas.
func (k *Keyspaces) checkQuotas(v *store.View, ks *clusterpb.Keyspace) error {
	if !keys.HasQuota(ks) {
		return nil
	}
	if err := keys.ValidateQuotas(ks); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	level, err := upgrade.Load(v)
	if err != nil {
		return k.meta.Status(err)
	}
	if !level.Allows(release.Quotas) {
		return status.Errorf(codes.FailedPrecondition, "quotas need %s of the cluster, as servers of "+
			"earlier releases do not keep to them: upgrade all servers, and run `tidemark upgrade "+
			"finalize`", release.Quotas.Level)
	}
	return nil
}

// validateTransactionLimits checks limits in milliseconds. 0 means that no limit is given.
func validateTransactionLimits(age, idle uint64) error {
	const least, most = uint64(keys.MinTransactionLimit / time.Millisecond),
		uint64(keys.MaxTransactionLimit / time.Millisecond)
	for _, l := range [...]struct {
		what   string
		millis uint64
	}{{"age", age}, {"idle time", idle}} {
		if l.millis != 0 && (l.millis < least || l.millis > most) {
			return status.Errorf(codes.InvalidArgument,
				"a maximum %s of transactions of %d ms; it is from %d to %d ms", l.what, l.millis,
				least, most)
		}
	}
	return nil
}
