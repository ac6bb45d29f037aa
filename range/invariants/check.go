package invariants

import (
	"fmt"
	"sync/atomic"
)

// Violation is the value of the panic of a check that failed.
type Violation struct{ text string }

// Error implements error.
func (v *Violation) Error() string { return "invariant violated: " + v.text }

// Check panics with a Violation unless an invariant holds. The text is one of fmt.Sprintf and says
// what does not hold. Calls stand in `if Enabled`.
func Check(holds bool, format string, args ...any) {
	if !holds {
		panic(&Violation{fmt.Sprintf(format, args...)})
	}
}

// Again panics once more with a recovered value, if that is a Violation.
func Again(recovered any) {
	if v, is := recovered.(*Violation); is {
		panic(v)
	}
}

// Small is the size up to which a check walks over a structure each time it changes.
const Small = 64

// Every says when a costly check is due: at the first of so many calls. The zero value is ready to
// use, and safe for concurrent use.
type Every struct{ calls atomic.Uint64 }

// Due counts a call, and returns true for the first of n.
func (e *Every) Due(n uint64) bool { return (e.calls.Add(1)-1)%n == 0 }

// Violated calls f, and returns the text of the check that failed in it; "" if none did. It is for
// tests of checks.
func Violated(f func()) (text string) {
	defer func() {
		recovered := recover()
		if v, is := recovered.(*Violation); is {
			text = v.text
		} else if recovered != nil {
			panic(recovered)
		}
	}()
	f()
	return ""
}
