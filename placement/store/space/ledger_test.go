package space

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever is let in, given up and applied, in whichever order: what is let in never takes the size
// above the quota, and what is refused would have.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		quota := rapid.Uint64Range(1, 1000).Draw(t, "quota")
		l.SetQuota(quota)
		size, let := uint64(0), []uint64(nil)
		sum := func() (n uint64) {
			for _, bytes := range let {
				n += bytes
			}
			return n
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 3).Draw(t, "action"); {
			case action < 2 || len(let) == 0:
				bytes := rapid.Uint64Range(1, 200).Draw(t, "bytes")
				fits := size+sum()+bytes <= quota
				if l.Reserve(bytes) != fits {
					t.Fatalf("%d bytes at %d and %d that were let in, of %d: want %v", bytes, size, sum(),
						quota, fits)
				}
				if fits {
					let = append(let, bytes)
				}
			case action == 2:
				l.Release(let[0])
				let = let[1:]
			default:
				applied := rapid.IntRange(1, len(let)).Draw(t, "applied")
				reserved, freed := uint64(0), rapid.Uint64Range(0, size).Draw(t, "freed")
				for _, bytes := range let[:applied] {
					size += rapid.Uint64Range(0, bytes).Draw(t, "added")
					reserved += bytes
				}
				let = let[applied:]
				size -= freed
				l.Applied(size, reserved, freed)
			}
			if over, _ := l.Room(); over || l.Size() != size {
				t.Fatalf("%d bytes, want %d, of %d", l.Size(), size, quota)
			}
		}
	})
}

// An alarm ends when a tenth of the quota is free, and what was refused would fit, unless that is
// more than half of it; so that the alarm does not come and go with each try of a large put.
func TestRoom(t *testing.T) {
	var l Ledger
	l.SetQuota(1000)
	check := func(size uint64, over, roomy bool) {
		t.Helper()
		l.Applied(size, 0, 0)
		if o, r := l.Room(); o != over || r != roomy {
			t.Errorf("at %d bytes: over %v, roomy %v", size, o, r)
		}
	}
	check(900, false, true)
	check(901, false, false)
	check(1000, false, false)
	check(1001, true, false)
	check(800, false, true)
	if l.Reserve(300) {
		t.Error("300 bytes at 800 of 1000")
	}
	check(800, false, false)
	check(701, false, false)
	check(700, false, true)
	if l.Reserve(2000) {
		t.Error("2000 bytes of 1000")
	}
	check(501, false, false)
	check(500, false, true)
	l.Forget()
	check(900, false, true)
	l.SetQuota(0)
	check(1<<40, false, true)
}
