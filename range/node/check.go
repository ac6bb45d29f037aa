package node

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
)

// CheckState compares the state database with the replicas: the statistics of each replica with a
// count, and all spans with the keys that lie in no span. It reads everything, and is for tests of
// a node at rest.
func (n *Node) CheckState(ctx context.Context) (problems []string, err error) {
	state, err := n.config.State.NewSnapshot()
	if err != nil {
		return nil, err
	}
	defer state.Close()
	for id, h := range n.replicas.All() {
		recorded, counted, err := storage.Recount(ctx, state, id)
		if err != nil {
			return problems, err
		}
		if recorded.Stats != counted {
			problems = append(problems, fmt.Sprintf("replica %s of partition %s holds %+v, and says %+v",
				h.Self, id, counted, recorded.Stats))
		}
	}
	strays, _, err := splitrecovery.Strays(state)
	for _, s := range strays {
		problems = append(problems, fmt.Sprintf("there is something in %s, which is in no "+
			"replica's span", s))
	}
	return problems, err
}
