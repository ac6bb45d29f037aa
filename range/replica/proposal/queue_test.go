package proposal

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type queued struct{ number, size int }

func (w queued) Size() int { return w.size }

// The queue beside a slice.
func TestQueueAgainstSlice(t *testing.T) {
	var buffers Buffers[queued]
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue(&buffers)
		if rapid.Bool().Draw(t, "zero queue") {
			q = Queue[queued]{}
		}
		var model []queued
		number := 0
		next := func(t *rapid.T) queued {
			number++
			return queued{number, rapid.IntRange(0, 1000).Draw(t, "size")}
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 200).Draw(t, "pushed") {
					w := next(t)
					q.Push(w)
					model = append(model, w)
				}
			},
			"push front": func(t *rapid.T) {
				var front []queued
				for range rapid.IntRange(1, 3).Draw(t, "pushed") {
					front = append(front, next(t))
				}
				q.PushFront(front)
				model = append(front, model...)
			},
			"pop": func(t *rapid.T) {
				var got []queued
				want := model[:min(len(model), rapid.IntRange(0, 200).Draw(t, "popped"))]
				for range want {
					if first := *q.First(); first != want[len(got)] {
						t.Fatalf("first is %v, want %v", first, want[len(got)])
					}
					got = q.Pop(got)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("popped %v, want %v", got, want)
				}
				model = model[len(want):]
			},
			"drain": func(t *rapid.T) {
				if got := q.Drain(); !slices.Equal(got, model) {
					t.Fatalf("drained %v, want %v", got, model)
				}
				model = nil
			},
			"": func(t *rapid.T) {
				size := 0
				for _, w := range model {
					size += w.size
				}
				if q.Len() != len(model) || q.Size() != size {
					t.Fatalf("%d writes of %d bytes, want %d of %d", q.Len(), q.Size(), len(model), size)
				}
				if q.Len() == 0 && cap(q.writes) > retainedWrites && q.buffers != nil {
					t.Fatalf("an empty queue keeps room for %d", cap(q.writes))
				}
			},
		})
	})
}
