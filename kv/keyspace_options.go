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

// DefaultHashPartitions is the number of partitions for "hash" in ParsePartitioning. A keyspace
// without the options Hash and Range is a range keyspace with one partition.
const DefaultHashPartitions = 32

// KeyspaceOption is an option of CreateKeyspace and CreateKeyspaceIfMissing: Hash, Range, Replicas,
// PlaceReplicas, PreferLeaders, GCWindow, CommitWait, MaxTransactionAge, MaxTransactionIdle,
// SplitSize, MergeSize, AutoSplit, DefaultTTL, QuotaBytes, QuotaRequests, QuotaThroughput.
type KeyspaceOption interface{ create(*keyspaceSettings) }

// AlterOption is an option of AlterKeyspace: Replicas, PlaceReplicas, PreferLeaders, GCWindow,
// ClosedLag, MaxTransactionAge, MaxTransactionIdle, SplitSize, MergeSize, AutoSplit, DefaultTTL,
// QuotaBytes, QuotaRequests, QuotaThroughput.
type AlterOption interface{ alter(*keyspaceSettings) }

// keyspaceSettings collects the options of a keyspace. A zero field means the cluster's default, or
// the present setting.
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
	quotas     quotaSettings
	// bad is the error of the first invalid option.
	bad error
}

func (s *keyspaceSettings) refuse(format string, args ...any) {
	if s.bad == nil {
		s.bad = fmt.Errorf(format, args...)
	}
}

func newKeyspaceSettings(options []KeyspaceOption) *keyspaceSettings {
	s := &keyspaceSettings{} // a range keyspace with one partition, which splits automatically
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
	s.quotas.create(r)
	r.NoAuto = s.noAuto != nil && *s.noAuto
	if s.leaders != nil {
		r.Leaders = *s.leaders
	}
	if s.hashPartitions == 0 {
		r.Partitioning = clusterpb.Partitioning_RANGE
	}
	return r
}

// keyspaceOption is an option that is only for a new keyspace.
type keyspaceOption func(*keyspaceSettings)

func (o keyspaceOption) create(s *keyspaceSettings) { o(s) }

// Hash spreads the keys over n partitions (1 to 16384) by their hash. The load is even for any
// keys, but scans visit all partitions. n never changes. A partition that grows splits into several
// partitions with the same hash number.
func Hash(n int) KeyspaceOption {
	return keyspaceOption(func(s *keyspaceSettings) {
		if n < 1 || n > keys.MaxHashPartitions {
			s.refuse("hash:%d: a hash keyspace has 1 to %d partitions", n, keys.MaxHashPartitions)
		}
		s.hashPartitions, s.splitAt = n, nil
	})
}

// Range keeps the keys in order: scans of neighbouring keys visit few partitions. The keyspace
// begins with one partition, or is split at the given keys, which must be ascending. Each given key
// is the first key of its partition.
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

// PlacementOption sets the number and the placement of a keyspace's replicas, when the keyspace is
// created or altered.
type PlacementOption func(*keyspaceSettings)

func (o PlacementOption) create(s *keyspaceSettings) { o(s) }
func (o PlacementOption) alter(s *keyspaceSettings)  { o(s) }

// PlaceReplicas sets where replicas have to be. Rules are separated by commas. Each rule names a
// region, a zone or a tag of nodes, or several joined with "+". After a colon comes the number of
// replicas that the rule is for. A rule without a number is for all replicas:
//
//	"region=eu:2,region=us:1"   two in eu and one in us
//	"disk=ssd"                  all on nodes with that tag
//	"zone!=z3"                  none in z3
//
// An empty text allows any node. A rule with a number may be violated by a repair: if no node
// satisfies the rule, a replica on another node is better than no replica.
func PlaceReplicas(rules string) PlacementOption {
	return func(s *keyspaceSettings) { s.placement = &rules }
}

// PreferLeaders sets where leaders should be, if a replica there can lead: a region, a zone or a
// tag of nodes, or several joined with "+", as in "region=eu". An empty text means no preference.
func PreferLeaders(where string) PlacementOption {
	return func(s *keyspaceSettings) { s.leaders = &where }
}

// Replicas sets the number of replicas, each on another node: 1, 3 or 5. The cluster's default is
// 3. When the number is altered, replicas are added or removed while the keyspace is in use.
func Replicas(n int) PlacementOption {
	return PlacementOption(func(s *keyspaceSettings) {
		if n != 1 && n != 3 && n != 5 {
			s.refuse("%d replicas: a keyspace has 1, 3 or 5", n)
		}
		s.replicas = n
	})
}

// SizeOption sets the sizes of a keyspace's partitions, when the keyspace is created or altered.
type SizeOption func(*keyspaceSettings)

func (o SizeOption) create(s *keyspaceSettings) { o(s) }
func (o SizeOption) alter(s *keyspaceSettings)  { o(s) }

// SplitSize sets the size above which a partition splits, in bytes. The minimum is one mebibyte. 0
// means the default of 256 MiB.
func SplitSize(bytes uint64) SizeOption {
	return func(s *keyspaceSettings) { s.splitSize = &bytes }
}

// MergeSize sets the total size below which two neighbouring partitions merge, in bytes. The
// maximum is half of SplitSize. 0 means the default: 64 MiB or a quarter of SplitSize.
func MergeSize(bytes uint64) SizeOption {
	return func(s *keyspaceSettings) { s.mergeSize = &bytes }
}

// AutoSplit sets whether partitions split and merge automatically, which is the default, or only on
// request.
func AutoSplit(on bool) SizeOption {
	return func(s *keyspaceSettings) { s.noAuto = new(bool); *s.noAuto = !on }
}

// GCWindowOption sets how long earlier versions of a keyspace can be read.
type GCWindowOption func(*keyspaceSettings)

func (o GCWindowOption) create(s *keyspaceSettings) { o(s) }
func (o GCWindowOption) alter(s *keyspaceSettings)  { o(s) }

// GCWindow sets how long earlier versions can be read, in whole seconds. The cluster's default is
// an hour. Altering it to a longer time brings no version back that is already removed.
func GCWindow(d time.Duration) GCWindowOption {
	return func(s *keyspaceSettings) {
		if d < time.Second {
			s.refuse("a GC window of %s: it has at least one second", d)
		}
		s.gcWindow = d.Truncate(time.Second)
	}
}

// ClosedLagOption sets how far behind the present any replica can be read.
type ClosedLagOption func(*keyspaceSettings)

func (o ClosedLagOption) create(s *keyspaceSettings) { o(s) }
func (o ClosedLagOption) alter(s *keyspaceSettings)  { o(s) }

// ClosedLag sets how far behind the present replicas that do not lead can be read: 50 ms to an
// hour, in whole milliseconds. The default is a second. A transaction that takes longer than that
// may have to commit at a later timestamp, and then may have to run again.
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

// CommitWait for a transaction makes Commit return only when every clock of the cluster has passed
// the commit timestamp. So every transaction that begins afterwards, on any client, gets a later
// timestamp. No read shows the transaction before that either. Without CommitWait, that is
// guaranteed for transactions with a common key, and for all operations of one client, or of
// clients that pass on their Timestamp.
//
// CommitWait for a keyspace does the same for every write to the keyspace, even a single one such
// as Put. A transaction that also writes to other keyspaces waits as a whole. If all keyspaces that
// clients use together have it, their operations are strictly serialisable. The setting cannot be
// changed later.
func CommitWait() CommitWaitOption { return CommitWaitOption{} }

// LimitOption is a limit of a keyspace for transactions, when the keyspace is created or altered.
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

// MaxTransactionAge is the maximum time, from the beginning of an attempt, for which a transaction
// may hold locks of the keyspace. After that the transaction is aborted, so that others get the
// locks. It is from a second to a week. The default is an hour. A change also applies to running
// transactions, as soon as the nodes know of the change.
func MaxTransactionAge(d time.Duration) LimitOption {
	return LimitOption{"age", d, func(s *keyspaceSettings) *time.Duration { return &s.maxAge }}
}

// MaxTransactionIdle is the maximum time for which a transaction may hold locks of the keyspace
// while the application makes no call in it, even if the client is alive. After that the
// transaction is aborted. It is from a second to a week. The default is two minutes. A limit that
// is not less than MaxTransactionAge has no effect. A change also applies to running transactions,
// as soon as the nodes know of the change.
func MaxTransactionIdle(d time.Duration) LimitOption {
	return LimitOption{"idle time", d, func(s *keyspaceSettings) *time.Duration { return &s.maxIdle }}
}

// QuotaOption sets a quota of a keyspace when the keyspace is created or altered.
type QuotaOption func(*keyspaceSettings)

func (o QuotaOption) create(s *keyspaceSettings) { o(s) }
func (o QuotaOption) alter(s *keyspaceSettings)  { o(s) }

// QuotaBytes limits the bytes of the keyspace, history included. The bytes are counted once, not
// for each replica. 0 means no quota. At the quota, writes that add data are refused with ErrQuota;
// reads and deletions still work. The check uses sizes that are some seconds old. A deletion
// reduces the size only after the garbage of the GC window has been collected.
func QuotaBytes(n uint64) QuotaOption {
	return func(s *keyspaceSettings) { s.quotas.bytes = &n }
}

// QuotaRequests limits the requests for the keyspace that clients may send to all nodes together in
// a second. 0 means no quota. A request counts as one, however many keys it has. Requests beyond
// the quota wait in the client until the quota admits them, or fail with ErrQuota when their
// context ends.
func QuotaRequests(n uint64) QuotaOption {
	return func(s *keyspaceSettings) { s.quotas.requests = &n }
}

// QuotaThroughput limits the bytes of requests and their answers, to and from all nodes together,
// in a second. The least is 1 KiB. 0 means no quota. Otherwise it is like QuotaRequests.
func QuotaThroughput(n uint64) QuotaOption {
	return func(s *keyspaceSettings) { s.quotas.throughput = &n }
}

// quotaSettings has the quotas that the options of a keyspace set. A quota that no option sets is
// nil.
type quotaSettings struct{ bytes, requests, throughput *uint64 }

// create adds the quotas to the request for a new keyspace.
func (q *quotaSettings) create(r *clusterpb.CreateKeyspaceRequest) {
	given := func(n *uint64) uint64 {
		if n == nil {
			return 0
		}
		return *n
	}
	r.QuotaBytes, r.QuotaRequestsPerSecond = given(q.bytes), given(q.requests)
	r.QuotaBytesPerSecond = given(q.throughput)
}

// differs describes the first quota of a keyspace that differs from a given quota. The text is
// empty if no quota differs.
func (q *quotaSettings) differs(k *clusterpb.Keyspace) string {
	for _, x := range []struct {
		what string
		has  uint64
		want *uint64
		text func(uint64) string
	}{
		{"stored bytes", k.GetQuotaBytes(), q.bytes, keys.SizeText},
		{"requests a second", k.GetQuotaRequestsPerSecond(), q.requests,
			func(n uint64) string { return fmt.Sprint(n) }},
		{"bytes a second", k.GetQuotaBytesPerSecond(), q.throughput, keys.SizeText},
	} {
		if x.want == nil || x.has == *x.want {
			continue
		}
		text := func(n uint64) string {
			if n == 0 {
				return "none"
			}
			return x.text(n)
		}
		return fmt.Sprintf("a quota of %s of %s instead of %s", x.what, text(x.has), text(*x.want))
	}
	return ""
}

// ignored returns an error if the core has ignored the quotas of a request, as a core of an earlier
// release does. k is the keyspace in the core's answer.
func (q *quotaSettings) ignored(op, name string, k *clusterpb.Keyspace) error {
	if q.differs(k) == "" {
		return nil
	}
	return invalid(op, name, nil, "the core runs a release that knows no quotas, and has set none; "+
		"upgrade all servers first")
}

// ParsePartitioning parses the partitioning of a keyspace in the form of a flag or a configuration
// file:
//
//	"hash:8"   spread over 8 partitions by hash
//	"hash"     the same, with DefaultHashPartitions
//	"range"    in key order, in one partition, or split at the given keys
//
// The result is an option for CreateKeyspace, as Hash or Range returns it. Split points are allowed
// with "range" only, and have to be ascending.
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
