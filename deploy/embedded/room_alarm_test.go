package embedded

import "testing"

// A quota that is exceeded for a moment, as by a snapshot that replaces the store, raises no alarm.
func TestQuotaIsLookedAtAgain(t *testing.T) {
	var r roomAlarm
	for i, c := range []struct{ over, low bool }{{true, false}, {true, false}, {false, false},
		{true, false}, {true, false}, {true, true}, {true, true}, {false, false}} {
		if low := r.exceeds(c.over); low != c.low {
			t.Errorf("look %d: %v", i, low)
		}
	}
}
