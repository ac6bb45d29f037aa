package route

import (
	"log/slog"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// bareSender has an empty table, and follows none.
func bareSender() *Sender {
	s := &Sender{log: slog.New(slog.DiscardHandler)}
	s.subscriptions.init()
	s.table.Store(newTable())
	s.nodes.Store(&[]*node{})
	s.mu.contents = newContents()
	s.mu.nodes = make(map[keys.NodeID]*node)
	return s
}
