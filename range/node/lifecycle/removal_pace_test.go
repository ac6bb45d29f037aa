package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// Replicas that wait for the next removal have their turn, also if others are removed at the moment
// at which it would have come.
func TestRestingReplicasHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p removalPace
		p.init()
		defer p.timer.Stop()
		p.removed(time.Now())
		p.rest(time.Now(), []*hosted.Replica{{ID: 7}})
		<-p.timer.C
		p.removed(time.Now()) // another one came first
		if rested := p.rested(time.Now(), 0); rested != nil {
			t.Fatalf("%v have their turn at once", rested)
		}
		select {
		case <-p.timer.C:
		case <-time.After(2 * removePause):
			t.Fatal("the one that rests is forgotten")
		}
		if rested := p.rested(time.Now(), 0); len(rested) != 1 {
			t.Fatalf("%v have their turn, want partition 7", rested)
		}
	})
}
