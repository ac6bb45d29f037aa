package fakeserver

// Mistakes are deliberate mistakes of a Store. The zero value makes none.
type Mistakes struct {
	// LostWrites: some acknowledged writes are lost. LostSoon: some are lost after a moment.
	LostWrites, LostSoon bool
	// StaleReads: some reads return the state of half a second ago.
	StaleReads bool
	// DoubledRetries: a write that is sent again is executed again.
	DoubledRetries bool
	// RefusedWrites: some writes are refused although they are executed.
	RefusedWrites bool
	// LostRows and RepeatedRows: scans lose or repeat a row at a page boundary.
	LostRows, RepeatedRows bool
	// DroppedSession: the timestamps of writes ignore the session.
	DroppedSession bool
	// LowWrites: the timestamps of writes ignore earlier reads.
	LowWrites bool
	// TornBatches: only half of some batches is executed.
	TornBatches bool
	// PresentScans: scans ignore the timestamp at which they are to read.
	PresentScans bool
	// BlindSwaps: some compare-and-swaps do not compare.
	BlindSwaps bool
	// Undeleted: some range deletions leave a key, but count it as deleted.
	Undeleted bool
	// Miscount: some counts are one too low.
	Miscount bool
	// LostChanges: a feed does not get some versions. EarlyResolved: a feed learns too early that
	// all changes up to now have come.
	LostChanges, EarlyResolved bool
	// FailedScans: one of this many scans is refused; 1: all, 0: none.
	FailedScans int
}

// oneOf returns true for one of n calls, if the mistake is made at all.
func (s *Store) oneOf(made bool, n int) bool { return made && s.Random.IntN(n) == 0 }
