package keys

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	spaolacci "github.com/spaolacci/murmur3"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"pgregory.net/rapid"
)

// Short keys of few different bytes, so that equal keys, prefixes and zeros are common.
var (
	genKey = rapid.SliceOfN(
		rapid.SampledFrom([]byte{0x00, 0x01, 0x09, 0x0d, 'a', 0xfe, 0xff}), 0, 5)
	genTimestamp = rapid.Custom(func(t *rapid.T) hlc.Timestamp {
		return hlc.Timestamp{
			Wall:    rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 1<<63-1)).Draw(t, "wall"),
			Logical: rapid.OneOf(rapid.Uint32Range(0, 2), rapid.Uint32()).Draw(t, "logical"),
		}
	})
	genSpan = rapid.Custom(func(t *rapid.T) Span {
		return Span{Start: genKey.Draw(t, "start"), End: genKey.Draw(t, "end")}
	})
)

// localTableSpan is the state span of what all partitions keep by their ids.
var localTableSpan = Span{Start: []byte{tableLocal, sentinel}, End: []byte{tableAnchor, sentinel}}

// versionedKey is the state key of one version of an internal key.
func versionedKey(internalKey []byte, ts hlc.Timestamp) []byte {
	return AppendTimestamp(DataKey(internalKey), ts)
}

func hash32(key []byte) uint32 {
	h := spaolacci.New32()
	_, _ = h.Write(key)
	return h.Sum32()
}

func TestHashPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		n := rapid.Uint32Range(1, MaxHashPartitions).Draw(t, "n")
		if got, want := HashPartition(key, n), hash32(key)%n; got != want {
			t.Fatalf("partition %d, want %d", got, want)
		}
	})
	// Data is stored by these numbers.
	for key, want := range map[string]uint32{"": 0, "a": 0x3c2569b2, "hello": 0x248bfa47,
		"user000000000042": 0x6f2a2efc} {
		if got := murmur3([]byte(key)); got != want {
			t.Errorf("murmur3(%q) = %#x, want %#x", key, got, want)
		}
	}
}

// TestStateKeysSort: by internal key, then newest first, with the unversioned key before all
// versions.
func TestStateKeysSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k1, k2 := genKey.Draw(t, "k1"), genKey.Draw(t, "k2")
		t1, t2 := genTimestamp.Draw(t, "t1"), genTimestamp.Draw(t, "t2")
		want := bytes.Compare(k1, k2)
		if want == 0 {
			switch {
			case t1.IsZero() || t2.IsZero():
				want = cmp.Compare(b2i(!t1.IsZero()), b2i(!t2.IsZero()))
			default:
				want = t2.Compare(t1)
			}
		}
		s1, s2 := versionedKey(k1, t1), versionedKey(k2, t2)
		if got := cockroachkvs.Compare(s1, s2); got != want {
			t.Fatalf("%s against %s: %d, want %d", PrettyState(s1), PrettyState(s2), got, want)
		}
		if cockroachkvs.Equal(s1, s2) != (want == 0) {
			t.Fatalf("%s and %s: equal", PrettyState(s1), PrettyState(s2))
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestVersionedKeyComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, ts := genKey.Draw(t, "key"), genTimestamp.Draw(t, "ts")
		stateKey := versionedKey(key, ts)
		if len(stateKey) != VersionedKeySize(key, ts) {
			t.Fatalf("%d bytes, want %d", len(stateKey), VersionedKeySize(key, ts))
		}
		if want := cockroachkvs.EncodeMVCCKey(nil, append([]byte{tableData}, key...),
			uint64(ts.Wall), ts.Logical); !bytes.Equal(stateKey, want) {
			t.Fatalf("%x, cockroachkvs says %x", stateKey, want)
		}
		again := AppendTimestamp(append([]byte("x"), DataKey(key)...), ts)
		if !bytes.Equal(again[1:], stateKey) {
			t.Fatalf("%x and %x", again[1:], stateKey)
		}
		gotKey, gotTS, err := DecodeVersioned(stateKey)
		if err != nil || !bytes.Equal(gotKey, key) || gotTS != ts {
			t.Fatalf("%x comes back as %x %s, %v", stateKey, gotKey, gotTS, err)
		}
		if !IsData(stateKey) || IsData(AnchorKey(key, "txn")) || IsData(nil) {
			t.Fatalf("%x: what is data is not told from what is not", stateKey)
		}
		if prefix := stateKey[:cockroachkvs.Split(stateKey)]; !bytes.Equal(prefix, DataKey(key)) {
			t.Fatalf("prefix %x of %x", prefix, stateKey)
		}
	})
}

func FuzzDecodeVersioned(f *testing.F) {
	f.Add(versionedKey([]byte("key"), hlc.Timestamp{Wall: 5}))
	f.Add(versionedKey([]byte("key"), hlc.Timestamp{Wall: 5, Logical: 6}))
	f.Add(DataKey([]byte("key\x00")))
	f.Add(DataKey(nil))
	f.Add([]byte{})
	f.Add([]byte{3, 0, 1})
	f.Fuzz(func(t *testing.T, stateKey []byte) {
		_ = PrettyState(stateKey)
		key, ts, err := DecodeVersioned(stateKey)
		if err == nil && (!IsData(stateKey) || !bytes.Equal(versionedKey(key, ts), stateKey)) {
			t.Fatalf("%x decodes to %x %s, which is %x", stateKey, key, ts, versionedKey(key, ts))
		}
	})
}

func FuzzDecodeAnchorKey(f *testing.F) {
	f.Add(AnchorKey([]byte("key\x00\x01\xff"), "txn"))
	f.Add(AnchorKey(nil, ""))
	f.Add([]byte{2, 0, 0xff, 0})
	f.Fuzz(func(t *testing.T, stateKey []byte) {
		key, suffix, err := DecodeAnchorKey(stateKey)
		if err == nil && !bytes.Equal(AnchorKey(key, suffix), stateKey) {
			t.Fatalf("%x decodes to %x %q", stateKey, key, suffix)
		}
	})
}

func FuzzDecodeLocalKey(f *testing.F) {
	f.Add(LocalKey(100, SuffixApplied))
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, stateKey []byte) {
		id, suffix, err := DecodeLocalKey(stateKey)
		if err == nil && !bytes.Equal(LocalKey(id, suffix), stateKey) {
			t.Fatalf("%x decodes to %s %q", stateKey, id, suffix)
		}
	})
}

// TestSpansHoldTheirKeys: a version, and an anchor, lies in the state span exactly if its internal
// key lies in the span.
func TestSpansHoldTheirKeys(t *testing.T) {
	in := func(s Span, stateKey []byte) bool {
		return cockroachkvs.Compare(stateKey, s.Start) >= 0 && cockroachkvs.Compare(stateKey, s.End) < 0
	}
	rapid.Check(t, func(t *rapid.T) {
		span, key := genSpan.Draw(t, "span"), genKey.Draw(t, "key")
		want := span.Contains(key)
		version := versionedKey(key, genTimestamp.Draw(t, "ts"))
		if got := in(DataSpan(span), version); got != want {
			t.Fatalf("%s in the data of %s: %v", PrettyState(version), span, got)
		}
		suffix := string(genKey.Draw(t, "suffix"))
		anchor := AnchorKey(key, suffix)
		if got := in(AnchorSpan(span), anchor); got != want {
			t.Fatalf("%s in the anchors of %s: %v", PrettyState(anchor), span, got)
		}
		if k, s, err := DecodeAnchorKey(anchor); err != nil || !bytes.Equal(k, key) || s != suffix {
			t.Fatalf("%x comes back as %x %q, %v", anchor, k, s, err)
		}
		id := PartitionID(rapid.Uint64().Draw(t, "id"))
		other := PartitionID(rapid.Uint64().Draw(t, "other"))
		local := LocalKey(id, suffix)
		if !in(LocalSpan(id), local) || (other != id && in(LocalSpan(other), local)) ||
			!in(localTableSpan, local) {
			t.Fatalf("%s and the spans of %s and %s", PrettyState(local), id, other)
		}
		if gotID, gotSuffix, err := DecodeLocalKey(local); err != nil || gotID != id ||
			gotSuffix != suffix {
			t.Fatalf("%x comes back as %s %q, %v", local, gotID, gotSuffix, err)
		}
		// The tables do not meet.
		for i, s := range []Span{localTableSpan, AnchorSpan(Span{}), DataSpan(Span{})} {
			for j, k := range [][]byte{local, anchor, version} {
				if in(s, k) != (i == j) {
					t.Fatalf("%s and table %d", PrettyState(k), i+1)
				}
			}
		}
	})
}

func TestSpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, key := genSpan.Draw(t, "a"), genSpan.Draw(t, "b"), genKey.Draw(t, "key")
		both := a.Contains(key) && b.Contains(key)
		if a.Intersect(b).Contains(key) != both {
			t.Fatalf("%s and %s and %q", a, b, key)
		}
		if both && !a.Overlaps(b) {
			t.Fatalf("%s and %s share %q and do not overlap", a, b, key)
		}
		if a.Overlaps(b) != b.Overlaps(a) {
			t.Fatalf("%s and %s overlap one way", a, b)
		}
		if both && a.Empty() {
			t.Fatalf("%s is empty and holds %q", a, key)
		}
		if a.ContainsSpan(b) && b.Contains(key) && !a.Contains(key) {
			t.Fatalf("%s holds %s, but not its %q", a, b, key)
		}
		if !b.Empty() && a.Intersect(b).Equal(b) != a.ContainsSpan(b) {
			t.Fatalf("%s, %s: intersection %s, contains %v", a, b, a.Intersect(b), a.ContainsSpan(b))
		}
		if p := PrefixSpan(a.Start); p.Contains(key) != bytes.HasPrefix(key, a.Start) {
			t.Fatalf("prefix span %s and %q", p, key)
		}
		if p := Point(a.Start); p.Contains(key) != bytes.Equal(key, a.Start) {
			t.Fatalf("point %s and %q", p, key)
		}
		if c := a.Clone(); !c.Equal(a) {
			t.Fatalf("%s clones to %s", a, c)
		}
	})
}

func TestPartition(t *testing.T) {
	hash := &clusterpb.Partition{Id: 100, Keyspace: 7, Hash: 3, PrefixLength: HashPrefixLength,
		Start: HashPrefix(7, 3), End: HashPrefix(7, 4)}
	last := &clusterpb.Partition{Id: 101, Keyspace: 1<<32 - 1, Hash: 16383,
		PrefixLength: HashPrefixLength, Start: HashPrefix(1<<32-1, 16383),
		End: PrefixEnd(HashPrefix(1<<32-1, 16383))}
	middle := &clusterpb.Partition{Id: 102, Keyspace: 7, PrefixLength: KeyspacePrefixLength,
		Start: append(KeyspacePrefix(7), 'f'), End: append(KeyspacePrefix(7), 'm')}
	tail := &clusterpb.Partition{Id: 103, Keyspace: 7, PrefixLength: KeyspacePrefixLength,
		Start: append(KeyspacePrefix(7), 'm'), End: PrefixEnd(KeyspacePrefix(7))}
	for _, p := range []*clusterpb.Partition{hash, last, middle, tail} {
		if err := ValidatePartition(p); err != nil {
			t.Error(err)
		}
	}
	for key, want := range map[string][4]bool{
		"a":                                   {true, true, false, false},
		"f":                                   {true, true, true, false},
		"lzzz\x00":                            {true, true, true, false},
		"m":                                   {true, true, false, true},
		"\xff\xff\xff":                        {true, true, false, true},
		strings.Repeat("\xff", MaxKeySize):    {true, true, false, true},
		"\x00":                                {true, true, false, false},
		"l" + strings.Repeat("\xff", 100):     {true, true, true, false},
		"e" + strings.Repeat("\xff", 100):     {true, true, false, false},
		"f\x00":                               {true, true, true, false},
		"m" + strings.Repeat("\x00", 10) + "": {true, true, false, true},
	} {
		for i, p := range []*clusterpb.Partition{hash, last, middle, tail} {
			internal := InternalKey(p, []byte(key))
			if got := PartitionContains(p, []byte(key)); got != want[i] ||
				PartitionSpan(p).Contains(internal) != want[i] {
				t.Errorf("partition %d and %q: %v", i, key, got)
			}
			if !bytes.Equal(UserKey(p, internal), []byte(key)) {
				t.Errorf("partition %d: %q comes back as %q", i, key, UserKey(p, internal))
			}
		}
	}
	got := InternalSpan(middle, Span{Start: []byte("a"), End: []byte("h")})
	if !got.Equal(Span{middle.Start, append(KeyspacePrefix(7), 'h')}) {
		t.Errorf("internal span %s", got)
	}
	if got := InternalSpan(tail, Span{}); !got.Equal(PartitionSpan(tail)) {
		t.Errorf("internal span %s", got)
	}
	if got := InternalSpan(middle, Span{Start: []byte("x")}); !got.Empty() {
		t.Errorf("internal span %s", got)
	}

	for what, p := range map[string]*clusterpb.Partition{
		"nil": nil,
		"no id": {Keyspace: 7, PrefixLength: 4, Start: KeyspacePrefix(7),
			End: PrefixEnd(KeyspacePrefix(7))},
		"prefix length": {Id: 100, Keyspace: 7, PrefixLength: 5, Start: HashPrefix(7, 0),
			End: HashPrefix(7, 1)},
		"short start": {Id: 100, Keyspace: 7, PrefixLength: 6, Start: KeyspacePrefix(7),
			End: HashPrefix(7, 1)},
		"empty": {Id: 100, Keyspace: 7, PrefixLength: 4, Start: KeyspacePrefix(7),
			End: KeyspacePrefix(7)},
		"no end": {Id: 100, Keyspace: 7, PrefixLength: 4, Start: KeyspacePrefix(7)},
		"other keyspace": {Id: 100, Keyspace: 8, PrefixLength: 4, Start: KeyspacePrefix(7),
			End: PrefixEnd(KeyspacePrefix(7))},
		"two keyspaces": {Id: 100, Keyspace: 7, PrefixLength: 4, Start: KeyspacePrefix(7),
			End: append(KeyspacePrefix(8), 'a')},
		"other hash": {Id: 100, Keyspace: 7, Hash: 1, PrefixLength: 6, Start: HashPrefix(7, 0),
			End: HashPrefix(7, 1)},
		"two hashes": {Id: 100, Keyspace: 7, PrefixLength: 6, Start: HashPrefix(7, 0),
			End: HashPrefix(7, 2)},
	} {
		if ValidatePartition(p) == nil {
			t.Errorf("%s: taken for a partition", what)
		}
	}
}

func TestValidate(t *testing.T) {
	for n, want := range map[int]error{0: ErrEmptyKey, 1: nil, MaxKeySize: nil,
		MaxKeySize + 1: ErrKeyTooLarge} {
		if err := ValidateUserKey(make([]byte, n)); !errors.Is(err, want) {
			t.Errorf("key of %d bytes: %v", n, err)
		}
	}
	for n, want := range map[int]error{0: nil, MaxValueSize: nil,
		MaxValueSize + 1: ErrValueTooLarge} {
		if err := ValidateValue(make([]byte, n)); !errors.Is(err, want) {
			t.Errorf("value of %d bytes: %v", n, err)
		}
	}
}

func TestPrettyIsPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		for _, s := range []string{Pretty(key), PrettyState(key),
			PrettyState(LocalKey(7, string(key))), PrettyState(AnchorKey(key, "x")),
			PrettyState(versionedKey(key, hlc.Timestamp{Wall: 1})), Span{Start: key}.String()} {
			for _, r := range s {
				if !unicode.IsPrint(r) {
					t.Fatalf("%q is not printable", s)
				}
			}
			if len(s) > 5*prettyLimit {
				t.Fatalf("%q is too long", s)
			}
		}
	})
	versioned := versionedKey([]byte("k\x00"), hlc.Timestamp{Wall: 1_000000002, Logical: 3})
	if got := PrettyState(versioned); got != `data "k\x00" at 1.000000002.3` {
		t.Error(got)
	}
	for _, s := range []string{KeyspaceID(1).String(), PartitionID(2).String(),
		ReplicaID(3).String(), NodeID(4).String()} {
		if len(s) != 2 {
			t.Error(s)
		}
	}
}
