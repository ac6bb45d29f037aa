package command

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// finder says that partition 7 is of keyspace 3, and 8 of keyspace 4.
type finder struct{}

func (finder) KeyspaceOf(partition uint64) uint64 {
	return map[uint64]uint64{7: 3, 8: 4}[partition]
}

var place = request.Place{Keyspace: 3, Finder: finder{}}

// A new command cannot forget to say what rights it needs: each has Permissions, and whatever its
// request reads or writes of the partition is in what it needs.
func TestEveryCommandSaysWhatItNeeds(t *testing.T) {
	for _, c := range All() {
		if c != Unknown() && c.Permissions == nil {
			t.Errorf("%s does not say what rights it needs", c.Name)
		}
	}
	cases := (&kvpb.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("command").Fields()
	for i := range cases.Len() {
		q := &kvpb.Request{Partition: 7}
		m := q.ProtoReflect()
		body := m.NewField(cases.Get(i)).Message()
		fill(body, 0)
		m.Set(cases.Get(i), protoreflect.ValueOfMessage(body))
		c := Of(q)
		if c.Permissions == nil {
			if c == Unknown() {
				t.Errorf("%s has no command", cases.Get(i).Name())
			}
			continue
		}
		needs := c.Permissions(place, q, nil)
		if c.Open != (len(needs) == 0) {
			t.Errorf("%s is open: %t, and needs %+v", c.Name, c.Open, needs)
		}
		if c.Footprint == nil {
			continue
		}
		f := c.Footprint(q)
		for key := range f.Keys {
			if !slices.ContainsFunc(needs, func(n access.Permission) bool {
				return n.Keyspace == 3 && holds(n, key, next(key))
			}) {
				t.Errorf("%s needs nothing for the key %q: %+v", c.Name, key, needs)
			}
		}
		for start, end := range f.EachSpan {
			if !slices.ContainsFunc(needs, func(n access.Permission) bool {
				return n.Keyspace == 3 && holds(n, start, end)
			}) {
				t.Errorf("%s needs nothing for the span [%q, %q): %+v", c.Name, start, end, needs)
			}
		}
		if len(needs) == 0 && c != Now {
			t.Errorf("%s needs nothing", c.Name)
		}
	}
}

func next(key []byte) []byte { return append(bytes.Clone(key), 0) }

// holds says that a need is for all of [start, end).
func holds(n access.Permission, start, end []byte) bool {
	switch {
	case n.End == nil:
		return bytes.Equal(n.Start, start) && bytes.Equal(end, next(start))
	case bytes.Compare(n.Start, start) > 0:
		return false
	case len(n.End) == 0:
		return true
	}
	return len(end) > 0 && bytes.Compare(end, n.End) <= 0
}

// fill sets all fields of a message: of keyspaces and partitions those of place, and of bytes keys,
// no two of which are equal, in the order of the fields.
func fill(m protoreflect.Message, depth int) {
	if depth > 4 {
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if of := f.ContainingOneof(); of != nil && m.WhichOneof(of) != nil {
			continue
		}
		value := func() protoreflect.Value {
			switch f.Kind() {
			case protoreflect.MessageKind:
				v := m.NewField(f)
				if f.IsList() {
					v = v.List().NewElement()
				}
				fill(v.Message(), depth+1)
				return v
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte{'a' + byte(depth), 'a' + byte(i)})
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true)
			}
			return number(f)
		}
		if f.IsList() {
			list := m.Mutable(f).List()
			list.Append(value())
			continue
		}
		m.Set(f, value())
	}
}

// number is a value of a field that has one: 7 for a partition, 3 for a keyspace, else 1.
func number(f protoreflect.FieldDescriptor) protoreflect.Value {
	n := uint64(1)
	switch f.Name() {
	case "partition":
		n = 7
	case "keyspace":
		n = 3
	}
	switch f.Kind() {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.Sint64Kind, protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(0)
	}
	panic("a field of a kind that was not met before: " + string(f.FullName()))
}

// What is needed for requests of each kind, where more is to be said than that it is the keys.
func TestNeeds(t *testing.T) {
	const r, w, a = access.Read, access.Write, access.Admin
	one := func(right access.Right, key string) access.Permission {
		return access.Permission{Keyspace: 3, Start: []byte(key), Right: right}
	}
	span := func(right access.Right, start, end string) access.Permission {
		return access.Permission{Keyspace: 3, Start: []byte(start), End: []byte(end), Right: right}
	}
	all := func(right access.Right) access.Permission {
		return access.Permission{Keyspace: 3, End: []byte{}, Right: right}
	}
	anchored := func(keyspace uint32) *kvpb.Transaction {
		return &kvpb.Transaction{Keyspace: keyspace, Anchor: []byte("anchor")}
	}
	anchor := func(keyspace uint64) access.Permission {
		return access.Permission{Keyspace: keyspace, Start: []byte("anchor"), Right: w}
	}
	elsewhere := func(n access.Permission) access.Permission { n.Keyspace = 4; return n }
	for _, c := range []struct {
		name string
		q    *kvpb.Request
		want []access.Permission
	}{
		{"a swap tells what is there", &kvpb.Request{Command: &kvpb.Request_CompareAndSwap{
			CompareAndSwap: &kvpb.CompareAndSwapRequest{Key: []byte("k")}}},
			[]access.Permission{one(r, "k"), one(w, "k")}},
		{"a scan to the end", &kvpb.Request{Command: &kvpb.Request_Scan{
			Scan: &kvpb.ScanRequest{Start: []byte("k")}}}, []access.Permission{span(r, "k", "")}},
		{"a scan of no key", &kvpb.Request{Command: &kvpb.Request_Scan{
			Scan: &kvpb.ScanRequest{Start: []byte("k"), End: []byte("b")}}},
			[]access.Permission{one(r, "k")}},
		{"keys of several keyspaces", &kvpb.Request{Command: &kvpb.Request_MultiGet{
			MultiGet: &kvpb.MultiGetRequest{Partitions: []*kvpb.PartitionKeys{
				{Partition: 7, Keys: [][]byte{[]byte("k"), []byte("l")}},
				{Partition: 8, Keys: [][]byte{[]byte("m")}}}}}},
			[]access.Permission{one(r, "k"), one(r, "l"), elsewhere(one(r, "m"))}},
		{"a span of several keyspaces", &kvpb.Request{Command: &kvpb.Request_MergeScan{
			MergeScan: &kvpb.MergeScanRequest{Start: []byte("k"), Partitions: []*kvpb.PartitionRoute{
				{Partition: 7}, {Partition: 7}, {Partition: 8}}}}},
			[]access.Permission{span(r, "k", ""), elsewhere(span(r, "k", ""))}},
		{"a partition that is not known", &kvpb.Request{Command: &kvpb.Request_MergeScan{
			MergeScan: &kvpb.MergeScanRequest{Partitions: []*kvpb.PartitionRoute{{Partition: 9}}}}},
			[]access.Permission{{Keyspace: 0, End: []byte{}, Right: r}}},
		{"a lock that tells the value", &kvpb.Request{Command: &kvpb.Request_Prepare{
			Prepare: &kvpb.PrepareRequest{Transaction: anchored(9), ReturnValues: true,
				Mutations: []*kvpb.Mutation{{Key: []byte("k"), Kind: kvpb.Mutation_LOCK}}}}},
			[]access.Permission{anchor(9), one(w, "k"), one(r, "k")}},
		{"a held span", &kvpb.Request{Command: &kvpb.Request_Prepare{
			Prepare: &kvpb.PrepareRequest{Transaction: anchored(3),
				HoldSpans: []*kvpb.KeySpan{{Start: []byte("k"), End: []byte("m")}}}}},
			[]access.Permission{anchor(3), span(w, "k", "m")}},
		{"a commit in one phase", &kvpb.Request{Command: &kvpb.Request_Prepare{
			Prepare: &kvpb.PrepareRequest{Transaction: anchored(3),
				Mutations: []*kvpb.Mutation{{Key: []byte("k"), Read: true}},
				OnePhase: &kvpb.OnePhase{Reads: &kvpb.ReadSet{Keys: [][]byte{[]byte("l")},
					Spans: []*kvpb.KeySpan{{Start: []byte("m")}}}}}}},
			[]access.Permission{anchor(3), one(w, "k"), one(r, "k"), one(r, "l"), span(r, "m", "")}},
		{"a commit", &kvpb.Request{Command: &kvpb.Request_EndTransaction{
			EndTransaction: &kvpb.EndTransactionRequest{Transaction: anchored(3), Commit: true}}},
			[]access.Permission{anchor(3)}},
		{"the end of another's transaction", &kvpb.Request{Command: &kvpb.Request_EndTransaction{
			EndTransaction: &kvpb.EndTransactionRequest{Transaction: anchored(3), Requested: true}}},
			[]access.Permission{all(a), anchor(3)}},
		{"the end of all locks", &kvpb.Request{Command: &kvpb.Request_Resolve{
			Resolve: &kvpb.ResolveRequest{}}}, []access.Permission{all(w)}},
		{"the end of locks in a span", &kvpb.Request{Command: &kvpb.Request_Resolve{
			Resolve: &kvpb.ResolveRequest{Within: &kvpb.KeySpan{Start: []byte("k"), End: []byte("l")}}}},
			[]access.Permission{span(w, "k", "l")}},
		{"a push", &kvpb.Request{Command: &kvpb.Request_Push{Push: &kvpb.PushRequest{}}},
			[]access.Permission{all(a)}},
		{"a look at transactions", &kvpb.Request{Command: &kvpb.Request_InspectTransactions{
			InspectTransactions: &kvpb.InspectTransactionsRequest{}}}, []access.Permission{all(a)}},
		{"a load", &kvpb.Request{Command: &kvpb.Request_Load{
			Load: &kvpb.LoadRequest{First: []byte("k"), Last: []byte("m")}}},
			[]access.Permission{all(a), span(w, "k", "m\x00")}},
		{"the time", &kvpb.Request{Command: &kvpb.Request_Now{}}, nil},
	} {
		got := Of(c.q).Permissions(place, c.q, nil)
		if !slices.EqualFunc(got, c.want, func(x, y access.Permission) bool {
			return x.Keyspace == y.Keyspace && x.Right == y.Right && bytes.Equal(x.Start, y.Start) &&
				bytes.Equal(x.End, y.End) && (x.End == nil) == (y.End == nil)
		}) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, got, c.want)
		}
	}
}
