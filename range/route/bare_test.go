package route

import (
	"log/slog"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
)

// bareSender has an empty table, and follows none.
func bareSender() *Sender {
	s := &Sender{log: slog.New(slog.DiscardHandler), life: lifetime.New()}
	s.identity = identity.New(identity.Config{Life: s.life, Logger: s.log})
	s.following.init(s)
	s.table.Store(newTable())
	s.nodes.Store(&[]*node{})
	s.mu.contents = newContents()
	s.mu.nodes = make(map[keys.NodeID]*node)
	return s
}
