package kv

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// DefaultHashPartitions is the number of partitions that "hash" stands for in ParsePartitioning. A
// keyspace for which neither Hash nor Range is given is a range keyspace of one partition.
const DefaultHashPartitions = 32

// KeyspaceOption is an option of CreateKeyspace and CreateKeyspaceIfMissing: Hash, Range, Replicas,
// PlaceReplicas, PreferLeaders, GCWindow, CommitWait, MaxTransactionAge, MaxTransactionIdle,
// SplitSize, MergeSize, AutoSplit, DefaultTTL.
type KeyspaceOption interface{ create(*keyspaceSettings) }

// AlterOption is an option of AlterKeyspace: Replicas, PlaceReplicas, PreferLeaders,
// MaxTransactionAge, MaxTransactionIdle, SplitSize, MergeSize, AutoSplit, DefaultTTL.
type AlterOption interface{ alter(*keyspaceSettings) }

// keyspaceSettings are the sum of the options of a keyspace. A zero field leaves the cluster's
// default, or the present setting.
type keyspaceSettings struct {
	// hashPartitions is 0 for a range keyspace.
	hashPartitions  int
	splitAt         [][]byte
	replicas        int
	gcWindow        time.Duration
	closedLag       time.Duration
	commitWait      bool
	maxAge, maxIdle time.Duration
	// placement and leaders are nil if they are not given.
	placement, leaders *string
	// splitSize, mergeSize and noAuto are nil if they are not given.
	splitSize, mergeSize *uint64
	noAuto               *bool
	// defaultTTL is in milliseconds; nil if it is not given.
	defaultTTL *uint64
	// bad is the error of the first invalid option.
	bad error
}

func (s *keyspaceSettings) refuse(format string, args ...any) {
	if s.bad == nil {
		s.bad = fmt.Errorf(format, args...)
	}
}

func newKeyspaceSettings(options []KeyspaceOption) *keyspaceSettings {
	s := &keyspaceSettings{} // of one range partition, which splits by itself
	for _, o := range options {
		o.create(s)
	}
	return s
}

// sizes returns the effective sizes of the settings.
func (s *keyspaceSettings) sizes() (split, merge uint64) {
	k := &clusterpb.Keyspace{}
	if s.splitSize != nil {
		k.SplitSizeBytes = *s.splitSize
	}
	if s.mergeSize != nil {
		k.MergeSizeBytes = *s.mergeSize
	}
	return keys.SplitSizes(k)
}

// request asks for a keyspace with the settings.
func (s *keyspaceSettings) request(name string) *clusterpb.CreateKeyspaceRequest {
	r := &clusterpb.CreateKeyspaceRequest{
		Name: name, Partitioning: clusterpb.Partitioning_HASH,
		HashPartitions: uint32(s.hashPartitions), SplitAt: s.splitAt,
		ReplicationFactor: uint32(s.replicas), GcWindowSeconds: uint64(s.gcWindow / time.Second),
		CommitWait:               s.commitWait,
		ClosedTimestampLagMillis: uint64(s.closedLag.Milliseconds()),
		TxnMaxAgeMillis:          uint64(s.maxAge.Milliseconds()),
		TxnMaxIdleMillis:         uint64(s.maxIdle.Milliseconds()),
	}
	if s.placement != nil {
		r.Placement = *s.placement
	}
	if s.splitSize != nil {
		r.SplitSizeBytes = *s.splitSize
	}
	if s.mergeSize != nil {
		r.MergeSizeBytes = *s.mergeSize
	}
	if s.defaultTTL != nil {
		r.DefaultTtlMillis = *s.defaultTTL
	}
	r.NoAuto = s.noAuto != nil && *s.noAuto
	if s.leaders != nil {
		r.Leaders = *s.leaders
	}
	if s.hashPartitions == 0 {
		r.Partitioning = clusterpb.Partitioning_RANGE
	}
	return r
}

// keyspaceOption is an option of a new keyspace alone.
type keyspaceOption func(*keyspaceSettings)

func (o keyspaceOption) create(s *keyspaceSettings) { o(s) }

// Hash spreads the keys over n partitions (1 to 16384) by their hash: even load, whatever the keys;
// scans visit all partitions. n never changes; partitions that grow split into several with the
// same of the n numbers.
func Hash(n int) KeyspaceOption {
	return keyspaceOption(func(s *keyspaceSettings) {
		if n < 1 || n > keys.MaxHashPartitions {
			s.refuse("hash:%d: a hash keyspace has 1 to %d partitions", n, keys.MaxHashPartitions)
		}
		s.hashPartitions, s.splitAt = n, nil
	})
}

// Range keeps the keys in order: scans of neighbouring keys visit few partitions. The keyspace
// begins with one partition, or is split at the given keys, which must be ascending; each is the
// first key of its partition.
func Range(splitAt ...[]byte) KeyspaceOption {
	return keyspaceOption(func(s *keyspaceSettings) {
		for i, key := range splitAt {
			if err := keys.ValidateUserKey(key); err != nil {
				s.refuse("split point %d: %v", i+1, err)
			}
			if i > 0 && bytes.Compare(splitAt[i-1], key) >= 0 {
				s.refuse("split points must be ascending, without repeats: %s comes before %s",
					keys.Pretty(splitAt[i-1]), keys.Pretty(key))
			}
		}
		s.hashPartitions, s.splitAt = 0, splitAt
	})
}

// PlacementOption sets how many replicas a keyspace has and where they are, when it is created or
// altered.
type PlacementOption func(*keyspaceSettings)

func (o PlacementOption) create(s *keyspaceSettings) { o(s) }
func (o PlacementOption) alter(s *keyspaceSettings)  { o(s) }

// PlaceReplicas sets where replicas have to be. Rules are separated by commas; each names a region,
// a zone or a tag of nodes, or several joined with "+", and after a colon the number of replicas
// that it is for; without a number it is for all:
//
//	"region=eu:2,region=us:1"   two in eu and one in us
//	"disk=ssd"                  all on nodes with that tag
//	"zone!=z3"                  none in z3
//
// Empty: anywhere. A rule with a number gives way to a repair: where no node satisfies it, a
// replica elsewhere is better than none.
func PlaceReplicas(rules string) PlacementOption {
	return func(s *keyspaceSettings) { s.placement = &rules }
}

// PreferLeaders sets where leaders should be, if a replica there can lead: a region, a zone or a
// tag of nodes, or several joined with "+", as in "region=eu". Empty: anywhere.
func PreferLeaders(where string) PlacementOption {
	return func(s *keyspaceSettings) { s.leaders = &where }
}

// Replicas sets the number of copies, on as many nodes: 1, 3 or 5. The cluster's default is 3. When
// it is altered, replicas are added or removed while the keyspace is used.
func Replicas(n int) PlacementOption {
	return PlacementOption(func(s *keyspaceSettings) {
		if n != 1 && n != 3 && n != 5 {
			s.refuse("%d replicas: a keyspace has 1, 3 or 5", n)
		}
		s.replicas = n
	})
}

// SizeOption sets the size of the partitions of a keyspace, when it is created or altered.
type SizeOption func(*keyspaceSettings)

func (o SizeOption) create(s *keyspaceSettings) { o(s) }
func (o SizeOption) alter(s *keyspaceSettings)  { o(s) }

// SplitSize is the size from which a partition splits, in bytes: at least a mebibyte; 0 is the
// default of 256 MiB.
func SplitSize(bytes uint64) SizeOption {
	return func(s *keyspaceSettings) { s.splitSize = &bytes }
}

// MergeSize is the size below which two neighbouring partitions together merge, in bytes: at most
// half of SplitSize; 0 is the default, 64 MiB or a quarter of SplitSize.
func MergeSize(bytes uint64) SizeOption {
	return func(s *keyspaceSettings) { s.mergeSize = &bytes }
}

// AutoSplit sets whether partitions split and merge by themselves, which is the default, or only on
// request.
func AutoSplit(on bool) SizeOption {
	return func(s *keyspaceSettings) { s.noAuto = new(bool); *s.noAuto = !on }
}

// GCWindow is how long earlier versions can be read, in whole seconds; the cluster's default is an
// hour.
func GCWindow(d time.Duration) KeyspaceOption {
	return keyspaceOption(func(s *keyspaceSettings) {
		if d < time.Second {
			s.refuse("a GC window of %s: it has at least one second", d)
		}
		s.gcWindow = d.Truncate(time.Second)
	})
}

// ClosedLagOption sets how far behind the present any replica can be read.
type ClosedLagOption func(*keyspaceSettings)

func (o ClosedLagOption) create(s *keyspaceSettings) { o(s) }
func (o ClosedLagOption) alter(s *keyspaceSettings)  { o(s) }

// ClosedLag is how far behind the present replicas that do not lead can be read: 50 ms to an hour,
// in whole milliseconds; the default is a second. Transactions that take longer than that may have
// to commit at a later timestamp, which may make them run again.
func ClosedLag(d time.Duration) ClosedLagOption {
	return func(s *keyspaceSettings) {
		if d < 50*time.Millisecond || d > time.Hour {
			s.refuse("a closed lag of %s: it is from 50ms to 1h", d)
		}
		s.closedLag = d.Truncate(time.Millisecond)
	}
}

// CommitWaitOption is an option of a transaction, or of a keyspace.
type CommitWaitOption struct{}

func (CommitWaitOption) create(s *keyspaceSettings) { s.commitWait = true }
func (CommitWaitOption) txn(o *txnOptions)          { o.commitWait = true }

// CommitWait of a transaction makes Commit return only when every clock of the cluster has passed
// the commit timestamp, so that whatever begins anywhere afterwards, on whatever client, gets a
// later timestamp. No read shows the transaction before that either. Without it that holds for
// every key, and for all that one client, or clients that pass on their Timestamp, do.
//
// CommitWait of a keyspace does so for every write to it, even a single one such as Put. A
// transaction that writes to other keyspaces too waits as a whole. If all keyspaces that clients
// use together have it, their operations are strictly serialisable. It cannot be changed later.
func CommitWait() CommitWaitOption { return CommitWaitOption{} }

// LimitOption is a limit of a keyspace for transactions, when it is created or altered.
type LimitOption struct {
	what  string
	limit time.Duration
	of    func(*keyspaceSettings) *time.Duration
}

func (o LimitOption) create(s *keyspaceSettings) { o.alter(s) }

func (o LimitOption) alter(s *keyspaceSettings) {
	if o.limit < txn.MinLimit || o.limit > txn.MaxLimit {
		s.refuse("a maximum %s of transactions of %s: it is from %s to %s",
			o.what, o.limit, txn.MinLimit, txn.MaxLimit)
	}
	*o.of(s) = o.limit
}

// MaxTransactionAge is the time since the beginning of its attempt for which a transaction may hold
// locks of the keyspace: then it is aborted, so that others get them. From a second to a week; the
// default is an hour. A change also applies to running transactions, as soon as the nodes have
// heard of it.
func MaxTransactionAge(d time.Duration) LimitOption {
	return LimitOption{"age", d, func(s *keyspaceSettings) *time.Duration { return &s.maxAge }}
}

// MaxTransactionIdle is how long a transaction may hold locks of the keyspace while the application
// makes no call in it, though the client lives: then it is aborted. From a second to a week; the
// default is two minutes. A limit that is no less than MaxTransactionAge has no effect. A change
// also applies to running transactions, as soon as the nodes have heard of it.
func MaxTransactionIdle(d time.Duration) LimitOption {
	return LimitOption{"idle time", d, func(s *keyspaceSettings) *time.Duration { return &s.maxIdle }}
}

// ParsePartitioning reads the partitioning of a keyspace in the form of a flag or a configuration
// file:
//
//	"hash:8"   spread over 8 partitions by hash
//	"hash"     the same, with DefaultHashPartitions
//	"range"    in key order, in one partition, or split at the given keys
//
// The result is an option for CreateKeyspace: what Hash or Range would return. Split points go with
// "range" only, and have to be ascending.
func ParsePartitioning(text string, splitAt ...[]byte) (KeyspaceOption, error) {
	kind, count, counted := strings.Cut(text, ":")
	switch {
	case kind == "range" && counted:
		return nil, badPartitioning("%q: range takes no number; name the split points instead", text)
	case kind == "range":
		return Range(splitAt...), nil
	case kind != "hash":
		return nil, badPartitioning("%q: write hash:N (for instance hash:32) or range", text)
	case len(splitAt) > 0:
		return nil, badPartitioning(
			"%q: split points are for range keyspaces; a hash keyspace begins with a partition for "+
				"each number", text)
	case !counted:
		return Hash(DefaultHashPartitions), nil
	}
	n, err := strconv.ParseUint(count, 10, 32)
	if err != nil || n < 1 || n > keys.MaxHashPartitions {
		return nil, badPartitioning("%q: the number of hash partitions is 1 to %d", text,
			keys.MaxHashPartitions)
	}
	return Hash(int(n)), nil
}

func badPartitioning(format string, args ...any) error {
	return &Error{Op: "partitioning", Message: fmt.Sprintf(format, args...),
		wraps: []error{ErrInvalidArgument}}
}

func partitioningText(hashPartitions int) string {
	if hashPartitions == 0 {
		return "range"
	}
	return fmt.Sprintf("hash:%d", hashPartitions)
}
