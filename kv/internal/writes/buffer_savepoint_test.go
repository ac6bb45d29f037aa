package writes

import (
	"fmt"
	"testing"
)

// What was written since the latest savepoint is kept by none, however often it is overwritten;
// what was written before is, until the transaction goes back.
func TestOverwritesSinceASavepoint(t *testing.T) {
	b := New()
	value := make([]byte, MaxBytes/4)
	write := func(why string, fits bool) {
		t.Helper()
		if tooLarge := b.Put(7, []byte("k"), Own{Value: value}); (tooLarge == "") != fits {
			t.Fatalf("%s: %q", why, tooLarge)
		}
	}
	first := b.Save()
	for n := range 10 {
		write(fmt.Sprintf("overwrite %d", n), true)
	}
	for n := range 2 {
		b.Save()
		write(fmt.Sprintf("beside savepoint %d", n), true)
	}
	b.Save()
	write("three are kept already, and keys", false)
	if !b.RollBack(first) {
		t.Fatal("the savepoint has gone")
	}
	for n := range 10 {
		write(fmt.Sprintf("overwrite %d after going back", n), true)
	}
}
