package console

import (
	"context"
	"net/http"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// wanted are the parameters of a change.
type wanted struct {
	Node, Partition uint64
	Transaction     string
}

// actions are the changes that the console can make, by name. Each corresponds to a command of the
// command line.
var actions = map[string]func(context.Context, Cluster, wanted) error{
	"pause": func(ctx context.Context, c Cluster, _ wanted) error {
		_, err := c.PausePlacement(ctx, true)
		return err
	},
	"resume": func(ctx context.Context, c Cluster, _ wanted) error {
		_, err := c.PausePlacement(ctx, false)
		return err
	},
	"drain": func(ctx context.Context, c Cluster, w wanted) error {
		_, err := c.SetNodeStatus(ctx, w.Node, admin.NodeDraining)
		return err
	},
	"activate": func(ctx context.Context, c Cluster, w wanted) error {
		_, err := c.SetNodeStatus(ctx, w.Node, admin.NodeActive)
		return err
	},
	"cancel-operator": func(ctx context.Context, c Cluster, w wanted) error {
		return c.CancelOperator(ctx, w.Partition)
	},
	"lead": func(ctx context.Context, c Cluster, w wanted) error {
		return c.TransferLeader(ctx, w.Partition, w.Node)
	},
	"abort-transaction": func(ctx context.Context, c Cluster, w wanted) error {
		_, err := c.AbortTransaction(ctx, w.Transaction)
		return err
	},
}

// do makes a change, if changes are allowed. The cluster checks the user's rights.
func (c *Console) do(w http.ResponseWriter, r *http.Request, v *viewer) {
	if !c.config.Admin {
		refuse(w, http.StatusForbidden,
			"this console shows only: start the server with --console-admin to change things here")
		return
	}
	name := r.PathValue("action")
	action := actions[name]
	if action == nil {
		refuse(w, http.StatusNotFound, "there is no such change")
		return
	}
	var given wanted
	if !read(w, r, &given) {
		return
	}
	c.finish(w, r, func(ctx context.Context) (any, error) {
		defer v.hold()()
		cluster, err := v.ask(ctx)
		if err == nil {
			err = action(ctx, cluster, given)
		}
		c.config.Logger.Info("console: a change", "action", name, "user", v.user,
			"from", r.RemoteAddr, "node", given.Node, "partition", given.Partition,
			"transaction", given.Transaction, "error", err)
		v.known.forget()
		return struct{}{}, err
	})
}
