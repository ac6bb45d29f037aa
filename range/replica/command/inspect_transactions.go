package command

import (
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// InspectTransactions shows the transactions that have locks in a partition. What it says is for
// people, so nothing is proved.
var InspectTransactions = register((*kvpb.Request_InspectTransactions)(nil), Command{
	Name: "inspect_transactions",
	Way:  InMemory,
	Body: func(q *kvpb.Request) bool { return q.GetInspectTransactions() != nil },
	// It tells keys, ids and addresses of all clients.
	Permissions: func(at Place, _ *kvpb.Request, needs []access.Permission) []access.Permission {
		return needAll(needs, at.Keyspace, access.Admin)
	},
})
