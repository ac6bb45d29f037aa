package node

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// Requests reach their partition together and in order, whatever the mixture.
func TestRoutingKeepsTheOrder(t *testing.T) {
	for range 200 {
		replicas := make([]*hosted.Replica, 1+rand.IntN(20))
		for i := range replicas {
			replicas[i] = &hosted.Replica{ID: keys.PartitionID(rand.Uint64N(1 << 20))}
		}
		n := 1 + rand.IntN(300)
		want := make(map[*hosted.Replica][]int32)
		p := passes.Get().(*pass)
		p.routing.begin(n)
		for i := range n {
			h := replicas[rand.IntN(len(replicas))]
			want[h] = append(want[h], int32(i))
			p.add(h, int32(i))
		}
		if len(p.portions) != len(want) {
			t.Fatalf("%d portions, want %d", len(p.portions), len(want))
		}
		for _, part := range p.portions {
			var got []int32
			for at := part.first; at >= 0; at = p.routing.next[at] {
				got = append(got, at)
			}
			if !slices.Equal(got, want[part.hosted]) {
				t.Fatalf("order %v, want %v", got, want[part.hosted])
			}
		}
		p.release()
	}
}
