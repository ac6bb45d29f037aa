package clockhealth

// Standing says how a clock compares with those of its peers, as far as they are measured.
type Standing struct {
	consensus consensus
	// Peers counts the measured peers, Off those that differ by more than the maximum offset.
	Off, Peers int
}

// consensus says whether a clock agrees with the others. It does not if it differs by more than the
// limit from half of all clocks. Otherwise there may be a dispute: of three clocks the middle one
// may be near both others, while those are too far from each other, and it cannot be known which of
// the two is right. The one that is behind knows for sure that the other is ahead, and stops
// serving. The one that is ahead may see the other behind just because of a slow network, and goes
// on.
type consensus int

const (
	// against: it differs from half of all clocks, or is behind one that does not.
	against consensus = iota
	// disputed: it agrees with the others, and seems to be ahead of one that agrees with the others
	// too.
	disputed
	// undisputed: it is within the limit of all clocks that agree with the others.
	undisputed
)

// consensusOf returns how the clock that shows 0 agrees with all clocks, itself included. Its time
// grows with the square of their number, which is that of hosts that share groups.
func consensusOf(clocks []int64, limit int64) consensus {
	majority := func(of int64) bool {
		near := 0
		for _, c := range clocks {
			if c-of <= limit && of-c <= limit {
				near++
			}
		}
		return near > len(clocks)/2
	}
	if !majority(0) {
		return against
	}
	found := undisputed
	for _, c := range clocks {
		switch {
		case c > limit && majority(c):
			return against
		case c < -limit && majority(c):
			found = disputed
		}
	}
	return found
}
