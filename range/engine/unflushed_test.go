package engine

import "testing"

// What was committed after a memtable was closed is not in the tables that its flush makes.
func TestUnflushed(t *testing.T) {
	var u unflushed
	want := func(bytes int64) {
		t.Helper()
		if got := u.bytes(); got != bytes {
			t.Errorf("%d bytes are unflushed, want %d", got, bytes)
		}
	}
	u.commit(100)
	u.commit(70) // to the next memtable
	u.begin(110) // a memtable takes more memory than what is in it
	want(170)
	u.end()
	want(60)
	u.begin(200) // no more than there is
	u.commit(5)
	u.end()
	want(5)
	// Memtables that take less than was committed: what the last flush did not take, this one does.
	u.commit(95)
	u.begin(10)
	u.end()
	u.begin(10)
	u.commit(20)
	u.end()
	want(20)
	// One that failed is begun again.
	u.begin(20)
	u.commit(1)
	u.begin(20)
	u.end()
	want(1)
}
