package sim

import "testing"

// For every kind of fault it is known how long its effects last.
func TestFaultsSettle(t *testing.T) {
	for _, name := range Kinds() {
		if _, known := settles[name]; !known {
			t.Errorf("it is not said for how long a %s is felt after its end", name)
		}
	}
	for name := range settles {
		if _, known := kinds[name]; !known {
			t.Errorf("there is no fault called %s", name)
		}
	}
}
