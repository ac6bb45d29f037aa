package proposal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"
)

// WalkBatch visits what Pebble wrote, in order.
func TestWalkBatchVisitsWhatPebbleWrote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var batch pebble.Batch
		var want []string
		for i := range rapid.IntRange(0, 20).Draw(t, "operations") {
			key := fmt.Appendf(nil, "key-%d", i)
			if rapid.Bool().Draw(t, "deletion") {
				if err := batch.Delete(key, nil); err != nil {
					t.Fatal(err)
				}
				want = append(want, fmt.Sprintf("delete %s", key))
				continue
			}
			value := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")
			if err := batch.Set(key, value, nil); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("set %s %x", key, value))
		}
		var got []string
		err := WalkBatch(batch.Repr(), func(deletion bool, key, value []byte) error {
			if deletion {
				got = append(got, fmt.Sprintf("delete %s", key))
			} else {
				got = append(got, fmt.Sprintf("set %s %x", key, value))
			}
			return nil
		})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("visited %v, want %v: %v", got, want, err)
		}
	})
}

// A batch that is cut anywhere, or says a wrong count, is refused, and visit's error is returned.
func TestWalkBatchRefuses(t *testing.T) {
	var batch pebble.Batch
	for i := range 3 {
		if err := batch.Set(fmt.Appendf(nil, "key-%d", i), []byte("value"), nil); err != nil {
			t.Fatal(err)
		}
	}
	whole := batch.Repr()
	ignore := func(bool, []byte, []byte) error { return nil }
	for n := 1; n < len(whole); n++ {
		if err := WalkBatch(whole[:n], ignore); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	stop := errors.New("stop")
	if err := WalkBatch(whole, func(bool, []byte, []byte) error { return stop }); err != stop {
		t.Fatalf("visit's error became %v", err)
	}
	numbered := append([]byte(nil), whole...)
	numbered[0] = 1
	if err := WalkBatch(numbered, ignore); !errors.Is(err, ErrMalformed) {
		t.Fatalf("a batch with a sequence number: %v", err)
	}
}
