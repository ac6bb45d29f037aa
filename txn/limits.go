package txn

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// The bounds of a keyspace's limits, and their defaults.
const (
	defaultMaxAge  = keys.DefaultTransactionAge
	defaultMaxIdle = keys.DefaultTransactionIdle
	MinLimit       = keys.MinTransactionLimit
	MaxLimit       = keys.MaxTransactionLimit
)

// Limits bound how long a transaction may hold locks of a keyspace. A zero field means no limit.
type Limits struct {
	// Age is the longest time since the beginning of the attempt.
	Age time.Duration
	// Idle is the longest time without a call of the application.
	Idle time.Duration
}

// LimitsOf returns the limits of a keyspace; the zero Limits while the keyspace is unknown.
func LimitsOf(k *clusterpb.Keyspace) Limits {
	if k == nil {
		return Limits{}
	}
	return Limits{
		Age:  limit(k.TxnMaxAgeMillis, defaultMaxAge),
		Idle: limit(k.TxnMaxIdleMillis, defaultMaxIdle),
	}
}

func limit(millis uint64, otherwise time.Duration) time.Duration {
	if millis == 0 {
		return otherwise
	}
	return time.Duration(min(millis, uint64(MaxLimit/time.Millisecond))) * time.Millisecond
}

// Stricter returns the stricter of both, field by field: a transaction with locks in several
// keyspaces is bound by the strictest of them.
func (l Limits) Stricter(m Limits) Limits {
	return Limits{Age: stricter(l.Age, m.Age), Idle: stricter(l.Idle, m.Idle)}
}

func stricter(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// overdue returns why a pending transaction is to be aborted now, and the limit that it exceeds;
// NO_REASON if it is within all limits. An idle time that was not reported counts as zero.
func (l Limits) overdue(record *Record, i *Info, p Present) (kvpb.AbortReason, time.Duration) {
	started := i.Started
	var idle time.Duration
	if record != nil {
		started, idle = record.Started, record.Idle
	}
	switch {
	case l.Age > 0 && p.Physical-started.Wall > int64(l.Age):
		return kvpb.AbortReason_EXPIRED, l.Age
	case l.Idle > 0 && idle > l.Idle:
		return kvpb.AbortReason_IDLE, l.Idle
	}
	return kvpb.AbortReason_NO_REASON, 0
}

// TooOld returns why a request that takes locks for a transaction, or commits it in one phase, is
// refused because of the transaction's age; nil if it is not. bound is how far clocks may differ.
//
// An attempt may be as old as the limit, and the transaction's first attempt may have begun as long
// again before it: a transaction that claims to have begun earlier would go before every other, so
// TooOld refuses it. A client whose attempts have taken that long begins the next one as a younger
// transaction.
func (l Limits) TooOld(i *Info, now int64, bound time.Duration) *Refusal {
	if l.Age == 0 {
		return nil
	}
	message := ""
	switch {
	case now-i.Started.Wall > int64(l.Age+bound):
		message = fmt.Sprintf("transaction %s has gone on since %s, for more than %s, the maximum age "+
			"of transactions in this keyspace; it has to run again", i.ID, i.Started, l.Age)
	case i.Started.Wall-i.Begun.Wall > int64(l.Age+bound):
		message = fmt.Sprintf(
			"transaction %s says that it began at %s, more than %s before this attempt,"+
				" the maximum age of transactions in this keyspace; it has to run again as a younger one",
			i.ID, i.Begun, l.Age)
	default:
		return nil
	}
	return &Refusal{Code: kvpb.ErrorCode_TRANSACTION_ABORTED, Reason: kvpb.AbortReason_EXPIRED,
		Limit: l.Age, Message: message}
}

// Believable reports whether a transaction can have begun at a time, given that its requests were
// accepted under these limits (TooOld). Times in the future are not checked.
func (l Limits) Believable(begun hlc.Timestamp, now int64, bound time.Duration) bool {
	age := l.Age
	if age == 0 {
		age = MaxLimit
	}
	return now-begun.Wall <= int64(2*(age+bound))
}

// LimitOf returns the limit that an aborted transaction has exceeded, if the status names the
// limit.
func LimitOf(s *kvpb.TransactionStatus) time.Duration {
	if !limited(s.GetReason()) {
		return 0
	}
	micros := min(s.GetLimitMicros(), uint64(MaxLimit/time.Microsecond))
	return time.Duration(micros) * time.Microsecond
}
