package replica

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// arbitrary makes requests of any shape, mostly of values with which they get far.
type arbitrary struct {
	*rand.Rand
	now         func() int64
	epochNumber func() uint64
	// newest numbers the newest transaction.
	newest uint64
}

var arbitraryKeys = []string{"a", "b", "c", "d", "e", "y\xff", "", "z", "A"}

func (a *arbitrary) oneOf(n int) bool { return a.IntN(n) == 0 }

// transaction is one of the latest.
func (a *arbitrary) transaction() uint64 {
	if a.oneOf(30) {
		a.newest++
	}
	return a.newest - min(a.newest, a.Uint64N(4))
}

// key is one of the partition, mostly.
func (a *arbitrary) key() []byte {
	n := len(arbitraryKeys)
	if !a.oneOf(30) {
		n -= 3
	}
	return []byte(arbitraryKeys[a.IntN(n)])
}

// message fills a message.
func (a *arbitrary) message(m protoreflect.Message, depth int) {
	switch x := m.Interface().(type) {
	case *kvpb.Timestamp:
		x.Wall, x.Logical = uint64(a.now()+a.Int64N(600e6)-500e6), a.Uint32N(3)
		if a.oneOf(20) {
			x.Wall = a.Uint64()
		}
		return
	case *kvpb.Transaction:
		id := a.transaction()
		x.Id = transactionID(fmt.Sprintf("T%d", id))
		x.Keyspace, x.Anchor = 7, []byte(arbitraryKeys[id%5])
		x.Begun = &kvpb.Timestamp{Wall: uint64(epoch) + id}
		x.Started = x.Begun
		if !a.oneOf(10) {
			return
		}
	case *kvpb.KeySpan:
		x.Start, x.End = a.key(), a.key()
		if string(x.Start) > string(x.End) && !a.oneOf(10) {
			x.Start, x.End = x.End, x.Start
		}
		return
	case *kvpb.Leadership:
		x.Partition, x.Term, x.Epoch = 100, 1, a.epochNumber()
		return
	case *kvpb.Mutation:
		x.Key, x.Kind = a.key(), kvpb.Mutation_Kind(a.IntN(4))
		if x.Kind == kvpb.Mutation_PUT || a.oneOf(20) {
			x.Value = []byte("value")
		}
		x.Read = a.oneOf(3)
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.ContainingOneof() == nil && !a.oneOf(3) {
			a.field(m, f, depth)
		}
	}
	for i := range m.Descriptor().Oneofs().Len() {
		of := m.Descriptor().Oneofs().Get(i).Fields()
		a.field(m, of.Get(a.IntN(of.Len())), depth)
	}
}

func (a *arbitrary) field(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	if !f.IsList() {
		if f.Message() == nil {
			m.Set(f, a.scalar(f))
		} else if depth > 0 {
			a.message(m.Mutable(f).Message(), depth-1)
		}
		return
	}
	list := m.Mutable(f).List()
	for range a.IntN(4) {
		if f.Message() == nil {
			list.Append(a.scalar(f))
		} else if depth > 0 {
			a.message(list.AppendMutable().Message(), depth-1)
		}
	}
}

func (a *arbitrary) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(a.oneOf(2))
	case protoreflect.BytesKind:
		if f.Name() == "transaction" || f.Name() == "pusher" || a.oneOf(20) {
			return protoreflect.ValueOfBytes(transactionID(fmt.Sprintf("T%d", a.transaction())))
		}
		return protoreflect.ValueOfBytes(a.key())
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(a.IntN(f.Enum().Values().Len() + 1)))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32([]uint32{0, 1, 2, 7, 1 << 31}[a.IntN(5)])
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64([]uint64{0, 1, 100, 1e6, 1 << 63}[a.IntN(5)])
	case protoreflect.Sint64Kind:
		return protoreflect.ValueOfInt64([]int64{0, 1, -1, 1e6, math.MaxInt64,
			math.MinInt64}[a.IntN(6)])
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text")
	}
	panic(fmt.Sprintf("a field of kind %s", f.Kind()))
}

// request is one with a command of any kind.
func (a *arbitrary) request() *kvpb.Request {
	q := &kvpb.Request{}
	of := q.ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	command := of.Get(a.IntN(of.Len()))
	if a.oneOf(3) {
		command = of.ByName("prepare")
	}
	a.field(q.ProtoReflect(), command, 6)
	if p := q.GetPrepare(); p != nil && !a.oneOf(10) {
		a.shape(p)
	}
	return q
}

// shape makes a Prepare of one of the kinds that there are.
func (a *arbitrary) shape(p *kvpb.PrepareRequest) {
	if p.Transaction == nil {
		p.Transaction = &kvpb.Transaction{}
		a.message(p.Transaction.ProtoReflect(), 2)
	}
	seen := make(map[string]bool)
	p.Mutations = slices.DeleteFunc(p.Mutations, func(m *kvpb.Mutation) bool {
		twice := seen[string(m.Key)]
		seen[string(m.Key)] = true
		return twice
	})
	kind := a.IntN(4)
	if kind != 2 || p.ReadAt == nil {
		p.ReadAt, p.Leadership = nil, nil
		for _, m := range p.Mutations {
			m.Read = false
		}
	}
	if kind < 2 {
		p.Volatile, p.ReturnValues, p.OnePhase = true, true, nil
	} else {
		p.Volatile, p.ReturnValues, p.HoldSpans = false, false, nil
	}
	switch kind {
	case 0:
		p.Mutations = nil
		for len(p.HoldSpans) == 0 || bytes.Equal(p.HoldSpans[0].Start, p.HoldSpans[0].End) {
			p.HoldSpans = []*kvpb.KeySpan{{Start: a.key(), End: a.key()}}
		}
	case 1:
		p.HoldSpans = nil
		for _, m := range p.Mutations {
			m.Kind, m.Value = kvpb.Mutation_LOCK, nil
		}
	case 2:
		p.OnePhase = nil
	case 3:
		if p.OnePhase == nil {
			p.OnePhase = &kvpb.OnePhase{}
		}
	}
}
