package embedded

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/timer"
)

// Kernel timers know nothing of virtual time: a server has them only where nothing can be virtual.
func TestWhoHasTimersOfTheKernel(t *testing.T) {
	elsewhere := func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }
	for name, c := range map[string]struct {
		config ServerConfig
		kernel bool
	}{
		"system's network":      {ServerConfig{}, true},
		"another network":       {ServerConfig{Dial: elsewhere}, false},
		"another, exact timers": {ServerConfig{Dial: elsewhere, AfterFunc: panicking}, false},
		"timers from outside":   {ServerConfig{AfterFunc: panicking}, false},
		"a listener made before": {ServerConfig{NewListener: func(string) (net.Listener,
			error) {
			return nil, net.ErrClosed
		}}, true},
	} {
		c.config.Dir, c.config.Listen, c.config.Advertise = "d", "a:1", "a:1"
		c.config.Roles, c.config.Core = []string{RoleNode}, []string{"b:1"}
		if err := c.config.ensureDefaults(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if kernel := c.config.AfterFunc == nil; kernel != c.kernel {
			t.Errorf("%s: kernel timers %t, want %t", name, kernel, c.kernel)
		}
	}
}

func panicking(time.Duration, func()) timer.Timer { panic("nothing waits here") }
