package sorting

import "bytes"

// Sample keeps some of the keys of records that pass, each of which stands for as many bytes. The
// zero Sample is ready for use.
type Sample struct {
	keys  [][]byte
	step  uint64
	since uint64
}

const (
	// mostSamples bounds the keys that are kept. When it is reached, half of them go, and the step
	// is doubled.
	mostSamples = 16 << 10
	firstStep   = 4 << 10
)

// Note takes in a record of a size.
func (s *Sample) Note(key []byte, size int) {
	if s.step == 0 {
		s.step = firstStep
	}
	if s.since += uint64(size); s.since < s.step {
		return
	}
	// A record that is larger than a step stands for more than one.
	for s.since >= s.step {
		s.since -= s.step
		s.keys = append(s.keys, bytes.Clone(key))
		if len(s.keys) == mostSamples {
			s.thin()
		}
	}
}

func (s *Sample) thin() {
	kept := s.keys[:0]
	for i := 1; i < len(s.keys); i += 2 {
		kept = append(kept, s.keys[i])
	}
	clear(s.keys[len(kept):])
	s.keys, s.step = kept, 2*s.step
}

// Keys are the sampled keys, in the order in which they came, and how many bytes each stands for.
func (s *Sample) Keys() (keys [][]byte, each uint64) { return s.keys, s.step }
