package keys

import "bytes"

// Span is a half-open interval of keys, [Start, End). An empty Start is the lowest key there is; an
// empty End means that the span has no upper end. The zero Span therefore holds every key.
type Span struct {
	Start, End []byte
}

// Point is the span that holds one key only.
func Point(key []byte) Span { return Span{Start: key, End: Next(key)} }

// Empty reports whether the span holds no key.
func (s Span) Empty() bool { return len(s.End) > 0 && bytes.Compare(s.Start, s.End) >= 0 }

// Contains reports whether the key lies in the span.
func (s Span) Contains(key []byte) bool {
	return bytes.Compare(key, s.Start) >= 0 && (len(s.End) == 0 || bytes.Compare(key, s.End) < 0)
}

// ContainsSpan reports whether every key of t lies in s. An empty t lies in every span.
func (s Span) ContainsSpan(t Span) bool {
	if t.Empty() {
		return true
	}
	return bytes.Compare(t.Start, s.Start) >= 0 &&
		(len(s.End) == 0 || (len(t.End) > 0 && bytes.Compare(t.End, s.End) <= 0))
}

// Overlaps reports whether some key lies in both.
func (s Span) Overlaps(t Span) bool { return !s.Intersect(t).Empty() }

// Intersect is the span of the keys that lie in both; it may be Empty. It aliases the arguments.
func (s Span) Intersect(t Span) Span {
	if bytes.Compare(t.Start, s.Start) > 0 {
		s.Start = t.Start
	}
	if len(s.End) == 0 || (len(t.End) > 0 && bytes.Compare(t.End, s.End) < 0) {
		s.End = t.End
	}
	return s
}

// Equal reports whether the spans have the same ends.
func (s Span) Equal(t Span) bool {
	return bytes.Equal(s.Start, t.Start) && bytes.Equal(s.End, t.End)
}

// Clone is a copy that shares no memory.
func (s Span) Clone() Span { return Span{Start: bytes.Clone(s.Start), End: bytes.Clone(s.End)} }

// String is printable, such as ["a", "b").
func (s Span) String() string {
	end := "∞"
	if len(s.End) > 0 {
		end = Pretty(s.End)
	}
	return "[" + Pretty(s.Start) + ", " + end + ")"
}

// Next is the lowest key above key.
func Next(key []byte) []byte {
	next := make([]byte, len(key)+1)
	copy(next, key)
	return next
}

// PrefixEnd is the end of the span of all keys that start with prefix. It is nil, meaning no end,
// if the prefix is empty or consists of 0xff only.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// PrefixSpan is the span of all keys that start with prefix.
func PrefixSpan(prefix []byte) Span { return Span{Start: prefix, End: PrefixEnd(prefix)} }
