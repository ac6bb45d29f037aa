package fakeserver

// Mistakes are what a Store may do wrong; the zero value does everything right.
type Mistakes struct {
	// LostWrites: some acknowledged writes are not there. LostSoon: they are there for a moment.
	LostWrites, LostSoon bool
	// StaleReads: some reads are of the moment half a second ago.
	StaleReads bool
	// DoubledRetries: a write that is sent again is executed again.
	DoubledRetries bool
	// RefusedWrites: some writes are executed and refused.
	RefusedWrites bool
	// LostRows and RepeatedRows: at a page boundary.
	LostRows, RepeatedRows bool
	// DroppedSession: writes take no notice of the session.
	DroppedSession bool
	// LowWrites: writes take no notice of what was read.
	LowWrites bool
	// TornBatches: some batches are executed by half.
	TornBatches bool
	// PresentScans: scans take no notice of the moment that they are to read.
	PresentScans bool
	// BlindSwaps: some compare-and-swaps compare nothing.
	BlindSwaps bool
	// Undeleted: some range deletions leave a key, and count it.
	Undeleted bool
	// Miscount: counts are one too low, now and then.
	Miscount bool
	// LostChanges: a feed is not told of some versions. EarlyResolved: it is told that all up to now
	// have come, and some may still come.
	LostChanges, EarlyResolved bool
	// FailedScans: of so many scans one is refused; 1 is all, 0 none.
	FailedScans int
}

// oneOf is true for one of n calls, if the mistake is made at all.
func (s *Store) oneOf(made bool, n int) bool { return made && s.Random.IntN(n) == 0 }
