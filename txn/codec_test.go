package txn

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func ts(wall int64) hlc.Timestamp { return hlc.Timestamp{Wall: wall} }

func testID(n byte) ID { return ID{0: 0xab, 15: n} }

func sampleInfo() Info {
	return Info{ID: testID(1), Begun: ts(10), Started: hlc.Timestamp{Wall: 1 << 60, Logical: 3},
		Keyspace: 7, Anchor: []byte("an\x00chor")}
}

func sampleLocks() []Lock {
	base := Lock{
		Transaction: sampleInfo(), Prepared: hlc.Timestamp{Wall: 1<<63 - 1, Logical: 1<<32 - 1},
		Request: mvcc.RequestID{Client: 1<<64 - 1, Sequence: 300}, Acquired: 1 << 61,
	}
	put, empty, deletion, lock, expiring, until := base, base, base, base, base, base
	put.Value = []byte("value\x00")
	expiring.Value, expiring.Lifetime = []byte("value\x00"), keys.For(keys.MaxTTL)
	until.Value, until.Lifetime = []byte("value\x00"), keys.Until(1<<62)
	deletion.Kind, lock.Kind = kvpb.Mutation_DELETE, kvpb.Mutation_LOCK
	lock.Request, lock.Acquired = mvcc.RequestID{}, 0
	return []Lock{put, empty, deletion, lock, expiring, until}
}

func sampleRecords() []Record {
	i := sampleInfo()
	return []Record{
		{Begun: i.Begun, Started: i.Started, Heard: 5},
		{Begun: i.Begun, Started: i.Started, Timestamp: ts(99)},
		{State: kvpb.TransactionState_COMMITTED, Timestamp: ts(1), Begun: i.Begun,
			Started: i.Started, Finished: i.Started.Next(), Heard: 5,
			Participants: []Participant{{Keyspace: 1<<32 - 1, First: []byte("a")},
				{First: make([]byte, keys.MaxKeySize)}}},
		{State: kvpb.TransactionState_ABORTED, Reason: kvpb.AbortReason_WOUNDED, Wounder: testID(7),
			Begun: i.Begun, Started: i.Started, Finished: hlc.MaxTimestamp},
		{State: kvpb.TransactionState_ABORTED, Reason: kvpb.AbortReason_WOUNDED, Begun: i.Begun,
			Started: i.Started, Finished: hlc.MaxTimestamp},
		{State: kvpb.TransactionState_ABORTED, Reason: kvpb.AbortReason_WOUNDED, Wounder: testID(7),
			Wanted: Wanted{1<<32 - 1, make([]byte, MaxWantedKey)},
			Begun:  i.Begun, Started: i.Started, Finished: hlc.MaxTimestamp},
		{State: kvpb.TransactionState_COMMITTED, CommitWait: true, Timestamp: ts(1), Begun: i.Begun,
			Started: i.Started, Finished: i.Started.Next()},
		{Begun: i.Begun, Started: i.Started, Heard: 5, Idle: 1500 * time.Millisecond},
		{State: kvpb.TransactionState_ABORTED, Reason: kvpb.AbortReason_EXPIRED, Limit: MaxLimit,
			Begun: i.Begun, Started: i.Started, Finished: hlc.MaxTimestamp},
		{State: kvpb.TransactionState_ABORTED, Reason: kvpb.AbortReason_IDLE, Limit: time.Second,
			Begun: i.Begun, Started: i.Started, Finished: hlc.MaxTimestamp},
		{State: kvpb.TransactionState_ABORTED, Reason: kvpb.AbortReason_REQUESTED, Begun: i.Begun,
			Started: i.Started, Finished: hlc.MaxTimestamp},
		{State: kvpb.TransactionState_COMMITTED, Timestamp: ts(1), Begun: i.Begun,
			Started: i.Started, Finished: i.Started.Next(), Heard: 5,
			Participants: []Participant{
				{Keyspace: 1<<32 - 1, First: []byte("a"), Last: []byte("a")},
				{Hash: keys.MaxHashPartitions - 1, First: make([]byte, keys.MaxKeySize),
					Last: []byte("b")}}},
	}
}

func TestCodecs(t *testing.T) {
	for _, l := range sampleLocks() {
		got, err := DecodeLock(l.Append(nil))
		if err != nil || !reflect.DeepEqual(got, l) {
			t.Errorf("%+v\nbecame %+v, %v", l, got, err)
		}
	}
	for _, r := range sampleRecords() {
		got, err := DecodeRecord(r.Append(nil))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v\nbecame %+v, %v", r, got, err)
		}
	}
}

// What was stored before records had a wanted key is read, and stored as it was.
func TestRecordsWithoutAWantedKey(t *testing.T) {
	id := testID(7)
	old := append([]byte{1, 0x23, 2}, id[:]...) // aborted by that one
	// No timestamp, begun at 10, started at 11, finished at 12, heard at 5, no participants.
	old = append(old, 0, 0, 10, 0, 11, 0, 12, 0, 5, 0)
	want := Record{State: kvpb.TransactionState_ABORTED, Reason: kvpb.AbortReason_WOUNDED,
		Wounder: id, Begun: ts(10), Started: ts(11), Finished: ts(12), Heard: 5}
	if got, err := DecodeRecord(old); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if again := want.Append(nil); !bytes.Equal(again, old) {
		t.Errorf("stored as %x", again)
	}
}

// What was stored before participants were spans is read: each is its whole keyspace. It is stored
// as it was.
func TestRecordsWithParticipantsOfOneKey(t *testing.T) {
	// Committed at 20, begun at 10, started at 11, finished at 12, heard at 5.
	old := []byte{1, 2, 0, 20, 0, 10, 0, 11, 0, 12, 0, 5, 2, 7, 1, 'k', 8, 1, 'l'}
	want := Record{State: kvpb.TransactionState_COMMITTED, Timestamp: ts(20), Begun: ts(10),
		Started: ts(11), Finished: ts(12), Heard: 5, Participants: []Participant{
			{Keyspace: 7, First: []byte("k")}, {Keyspace: 8, First: []byte("l")}}}
	got, err := DecodeRecord(old)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range got.Participants {
		if p := &got.Participants[i]; !p.Whole() || !p.Span().Contains([]byte("z")) {
			t.Errorf("%+v is not its whole keyspace", p)
		}
	}
	if again := want.Append(nil); !bytes.Equal(again, old) {
		t.Errorf("stored as %x", again)
	}
}

// No beginning of what is stored decodes, but for a lock's value, which has no length of its own.
func TestTruncatedIsRefused(t *testing.T) {
	for _, l := range sampleLocks() {
		whole := l.Append(nil)
		for n := range len(whole) - len(l.Value) {
			if got, err := DecodeLock(whole[:n]); err == nil {
				t.Fatalf("%d of %d bytes of a lock: %+v", n, len(whole), got)
			}
		}
	}
	for _, r := range sampleRecords() {
		whole := r.Append(nil)
		for n := range whole {
			if got, err := DecodeRecord(whole[:n]); err == nil {
				t.Fatalf("%d of %d bytes of a record: %+v", n, len(whole), got)
			}
		}
		if got, err := DecodeRecord(append(whole, 0)); err == nil {
			t.Fatalf("a byte more than a record: %+v", got)
		}
	}
}

// The errors say what is wrong.
func TestMalformedIsRefused(t *testing.T) {
	lock := func(change func(*Lock)) []byte {
		l := sampleLocks()[0]
		change(&l)
		return l.Append(nil)
	}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{[]byte{}, "empty"},
		{[]byte{9, 1}, "version 9"},
		{lock(func(l *Lock) { l.Kind = kvpb.Mutation_UNLOCK }), "unknown kind"},
		{lock(func(l *Lock) { l.Kind = -1 }), "unknown kind"},
		{lock(func(l *Lock) { l.Kind = kvpb.Mutation_DELETE }), "a DELETE with a value of 6 bytes"},
		{lock(func(l *Lock) { l.Transaction.ID = ID{} }), "zero bytes"},
		{lock(func(l *Lock) { l.Transaction.Begun = hlc.Timestamp{} }), "first attempt began"},
		{lock(func(l *Lock) { l.Transaction.Started = hlc.Timestamp{} }), "this attempt began"},
		{lock(func(l *Lock) { l.Transaction.Started = ts(9) }), "before the first one"},
		{lock(func(l *Lock) { l.Transaction.Anchor = nil }), "the key is empty"},
		{lock(func(l *Lock) { l.Transaction.Anchor = make([]byte, keys.MaxKeySize+1) }),
			"malformed anchor"},
		{lock(func(l *Lock) { l.Prepared = hlc.Timestamp{} }), "no prepared timestamp"},
		{lock(func(l *Lock) { l.Prepared.Wall = -1 }), "malformed prepared timestamp"},
		{lock(func(l *Lock) { l.Value = make([]byte, keys.MaxValueSize+1) }), "the value is too large"},
		{[]byte{lockVersion, 1, 2}, "ends before its id"},
		{lock(func(l *Lock) { l.Lifetime = keys.For(keys.MaxTTL + 1) }), "malformed time to live"},
		{append([]byte{lockVersionUntil}, lock(func(l *Lock) { l.Value = []byte{1} })[1:]...),
			"no expiry"},
		{append([]byte{lockVersionTTL}, lock(func(l *Lock) { l.Value = nil })[1:]...),
			"malformed time to live"},
		{append([]byte{lockVersionTTL}, lock(func(l *Lock) { l.Value = []byte{0} })[1:]...),
			"no time to live"},
	} {
		if _, err := DecodeLock(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("lock %.40x: %v, want something about %q", c.data, err, c.want)
		}
	}

	record := func(n int, change func(*Record)) []byte {
		r := sampleRecords()[n]
		change(&r)
		return r.Append(nil)
	}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{[]byte{}, "empty"},
		{[]byte{9, 1}, "version 9"},
		{record(0, func(r *Record) { r.CommitWait = true }), "not committed"},
		{record(3, func(r *Record) { r.CommitWait = true }), "not committed"},
		{record(0, func(r *Record) { r.State = 3 }), "unknown state 3"},
		{record(0, func(r *Record) { r.State = -1 }), "unknown state"},
		{record(0, func(r *Record) { r.Finished = r.Started.Next() }), "pending, and yet finished"},
		{record(0, func(r *Record) { r.Participants = []Participant{{First: []byte("a")}} }),
			"pending, and yet finished"},
		{record(0, func(r *Record) {
			r.Reason = kvpb.AbortReason_WOUNDED
		}), "pending, and yet finished"},
		{record(0, func(r *Record) { r.Begun = hlc.Timestamp{} }), "first attempt began"},
		{record(2, func(r *Record) { r.Timestamp = hlc.Timestamp{} }), "without a timestamp"},
		{record(2, func(r *Record) { r.Reason = kvpb.AbortReason_WOUNDED }), "reason to abort"},
		{record(2, func(r *Record) { r.Finished = r.Started }), "not after it started"},
		{record(2, func(r *Record) { r.Participants = []Participant{{}} }), "the key is empty"},
		{record(2, func(r *Record) {
			r.Participants = []Participant{{First: make([]byte, keys.MaxKeySize+1)}}
		}), "malformed participant's key"},
		{record(11, func(r *Record) { r.Participants[1].Last = make([]byte, keys.MaxKeySize+1) }),
			"malformed participant's last key"},
		{record(11, func(r *Record) { r.Participants[1].Hash = keys.MaxHashPartitions }),
			"malformed hash number"},
		{record(11, func(r *Record) { r.Participants[0].Last = []byte("Z") }), "not above its first"},
		{append([]byte{recordOfSpans}, record(6, func(*Record) {})[1:]...), "has no participants"},
		{append([]byte{recordOfSpans + 1}, record(6, func(*Record) {})[1:]...), "version 3"},
		{append([]byte{0}, record(6, func(*Record) {})[1:]...), "version 0"},
		{bytes.Replace(record(11, func(*Record) {}), []byte("\x01a\x00"), []byte("\x01a\x01a"), 1),
			"not above its first"},
		{record(4, func(r *Record) { r.Reason = kvpb.AbortReason_NO_REASON }), "unknown reason 0"},
		{record(4, func(r *Record) { r.Reason = 7 }), "unknown reason 7"},
		{record(4, func(r *Record) {
			r.Reason, r.Limit = kvpb.AbortReason_EXPIRED, MaxLimit+time.Second
		}), "malformed limit"},
		{record(4, func(r *Record) { r.Idle = time.Second }), "decided, and yet idle"},
		{record(0, func(r *Record) { r.Idle = MaxLimit + time.Second }), "malformed idle time"},
		{record(0, func(r *Record) { r.Idle = time.Microsecond }), "idle for no time"},
		{record(3, func(r *Record) { r.Reason = kvpb.AbortReason_ABANDONED }), "yet by a transaction"},
		{record(5, func(r *Record) { r.Reason, r.Wounder = kvpb.AbortReason_ABANDONED, ID{} }),
			"yet over a key"},
		{record(5, func(r *Record) { r.Wanted.Key = make([]byte, MaxWantedKey+1) }),
			"malformed wanted key"},
		{record(5, func(r *Record) { r.State = 0x3f }), "unknown state"},
		{[]byte{recordOfKeys, byte(kvpb.TransactionState_ABORTED) + 1 | recordWanted,
			byte(kvpb.AbortReason_WOUNDED), 7, 0}, "wanted key is empty"},
		{record(3, func(r *Record) { r.Timestamp = ts(1) }), "aborted, and yet with a timestamp"},
		{append(bytes.TrimSuffix(record(0, func(*Record) {}), []byte{0}), 0xff, 0xff, 0xff, 0xff,
			0x0f), "participants in 0 bytes"},
	} {
		if _, err := DecodeRecord(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("record %.40x: %v, want something about %q", c.data, err, c.want)
		}
	}
}

// What decodes encodes to the same bytes, and nothing panics.
func FuzzDecodeLock(f *testing.F) {
	for _, l := range sampleLocks() {
		f.Add(l.Append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeLock(data)
		if err != nil {
			return
		}
		if again := l.Append(nil); !bytes.Equal(again, data) {
			t.Fatalf("%x decodes and encodes to %x", data, again)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range sampleRecords() {
		f.Add(r.Append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(data)
		if err != nil {
			return
		}
		if again := r.Append(nil); !bytes.Equal(again, data) {
			t.Fatalf("%x decodes and encodes to %x", data, again)
		}
	})
}

// Whatever a message says, what is accepted can be stored, and read again.
func FuzzParseInfo(f *testing.F) {
	sample, err := proto.Marshal(sampleInfo().Proto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m kvpb.Transaction
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		i, err := ParseInfo(&m)
		if err != nil {
			return
		}
		if again, err := ParseInfo(i.Proto()); err != nil || !reflect.DeepEqual(again, i) {
			t.Fatalf("%+v became %+v, %v", i, again, err)
		}
		l := Lock{Transaction: i, Prepared: ts(1)}
		if got, err := DecodeLock(l.Append(nil)); err != nil || !reflect.DeepEqual(got, l) {
			t.Fatalf("%+v became %+v, %v", l, got, err)
		}
	})
}

// A deletion and a lock have no lifetime. Earlier versions stored them with that of the keyspace's
// default, and their logs are read.
func TestLockWithoutValueHasNoLifetime(t *testing.T) {
	for _, kind := range []kvpb.Mutation_Kind{kvpb.Mutation_DELETE, kvpb.Mutation_LOCK} {
		l := sampleLocks()[0]
		l.Kind, l.Value, l.Lifetime = kind, nil, keys.For(time.Hour)
		stored := l.Append(nil)
		l.Kind, l.Value = kvpb.Mutation_PUT, nil
		old := l.Append(nil)
		old[1] = byte(kind) + 1
		for _, data := range [][]byte{stored, old} {
			got, err := DecodeLock(data)
			if err != nil || got.Kind != kind || got.Lifetime != keys.DefaultLifetime {
				t.Errorf("%s: %+v, %v", kind, got, err)
			}
		}
		if stored[0] != lockVersion || old[0] != lockVersionTTL {
			t.Errorf("%s: stored in version %d, and by earlier versions in %d", kind, stored[0], old[0])
		}
	}
}
