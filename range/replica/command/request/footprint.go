package request

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

// Footprint lists the user keys and spans that a request reads or writes in its partition. It
// aliases the request.
type Footprint struct {
	// One is a single key, or nil. It saves the allocation of a slice.
	One []byte
	// Many are further keys.
	Many [][]byte
	// Spans are spans of keys; an empty end reaches to the end of the partition.
	Spans []*kvpb.KeySpan
	// Start and End are one more span, if Span is set. It saves the allocation of a message.
	Span       bool
	Start, End []byte
}

func Point(key []byte) Footprint { return Footprint{One: key} }

func Points(keys [][]byte) Footprint { return Footprint{Many: keys} }

func Span(start, end []byte) Footprint { return Footprint{Span: true, Start: start, End: end} }

// Long reports whether reading it takes too long for the goroutine that delivers requests.
func (f *Footprint) Long() bool {
	return f.Span || len(f.Spans) > 0 || len(f.Many) > shortRead
}

// shortRead is how many keys a goroutine may read while others wait for it.
const shortRead = 16

// Keys iterates over the single keys, in the request's order.
func (f *Footprint) Keys(yield func([]byte) bool) {
	if f.One != nil && !yield(f.One) {
		return
	}
	for _, key := range f.Many {
		if !yield(key) {
			return
		}
	}
}

// EachSpan iterates over the spans, in the request's order: start and end.
func (f *Footprint) EachSpan(yield func(start, end []byte) bool) {
	if f.Span && !yield(f.Start, f.End) {
		return
	}
	for _, s := range f.Spans {
		if !yield(s.GetStart(), s.GetEnd()) {
			return
		}
	}
}
