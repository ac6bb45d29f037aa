package embedded

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// The clock of a node is compared with one that stands still with the machine, so that it is not
// believed when the machine has been suspended; a clock that is given is used for both.
func TestClocksOfANode(t *testing.T) {
	c := ServerConfig{Dir: "d", Listen: "a:1", Core: []string{"a:1"}}
	if err := c.ensureDefaults(); err != nil {
		t.Fatal(err)
	}
	c.awake = func() int64 { return 0 } // it stands still
	wall := hlc.NewManual(1e18)
	c.Physical = wall
	steady := c.clock().Steady()
	steady.Look(nil)
	wall.Advance(time.Second)
	if jump, jumped := steady.Look(nil); !jumped || jump != time.Second {
		t.Errorf("the machine was suspended for a second, and its clock jumped by %v", jump)
	}

	var given int64
	c = ServerConfig{Dir: "d", Listen: "a:1", Core: []string{"a:1"}, Physical: wall,
		Monotonic: func() int64 { return given }}
	if err := c.ensureDefaults(); err != nil {
		t.Fatal(err)
	}
	steady = c.clock().Steady()
	steady.Look(nil)
	wall.Advance(time.Second)
	given += int64(time.Second)
	if jump, _ := steady.Look(nil); jump != 0 {
		t.Errorf("the clock that was given went on, and the other one jumped by %v", jump)
	}
}
