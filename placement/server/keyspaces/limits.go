package keyspaces

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
				"a maximum %s of transactions of %d ms; it is from %d to %d ms", l.what, l.millis,
				least, most)
		}
	}
	return nil
}
