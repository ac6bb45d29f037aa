// Package kvpb has the messages of the protocol between the SDK and a data node (kv.proto), and the
// names of the commands.
package kvpb

// CommandName returns the name of a request's command, for metrics and traces: the name of its
// field in the message Request. It is "none" without a command, and for commands of later versions.
func (x *Request) CommandName() string {
	if x.GetCall() != nil {
		return "call"
	}
	switch x.GetCommand().(type) {
	case *Request_Get:
		return "get"
	case *Request_Put:
		return "put"
	case *Request_Delete:
		return "delete"
	case *Request_CompareAndSwap:
		return "compare_and_swap"
	case *Request_WriteBatch:
		return "write_batch"
	case *Request_BatchGet:
		return "batch_get"
	case *Request_Scan:
		return "scan"
	case *Request_Count:
		return "count"
	case *Request_DeleteRange:
		return "delete_range"
	case *Request_Now:
		return "now"
	case *Request_MergeScan:
		return "merge_scan"
	case *Request_Prepare:
		return "prepare"
	case *Request_Refresh:
		return "refresh"
	case *Request_EndTransaction:
		return "end_transaction"
	case *Request_Push:
		return "push"
	case *Request_HeartbeatTransaction:
		return "heartbeat_transaction"
	case *Request_Resolve:
		return "resolve"
	case *Request_InspectTransactions:
		return "inspect_transactions"
	case *Request_MultiGet:
		return "multi_get"
	case *Request_Increment:
		return "increment"
	case *Request_Load:
		return "load"
	case *Request_Changes:
		return "changes"
	case *Request_SlowRequests:
		return "slow_requests"
	}
	return "none"
}

// CommandNames returns all names of CommandName but "call".
func CommandNames() []string {
	fields := (*Request)(nil).ProtoReflect().Descriptor().Oneofs().ByName("command").Fields()
	names := []string{"none"}
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return names
}
