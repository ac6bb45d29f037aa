package clusterauth

import (
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Of each method of the service Cluster it was decided whether it administers.
func TestMethodsThatAdminister(t *testing.T) {
	open := []string{"Status", "ListNodes", "ListOperators", "Why", "ListEvents", "ListKeyspaces",
		"ListCore", "GetConsumer", "ListConsumers", "LoadHistory"}
	for _, m := range clusterpb.Cluster_ServiceDesc.Methods {
		_, ofKeyspace := ofKeyspaces[m.MethodName]
		if (ofKeyspace || slices.Contains(administration, m.MethodName)) ==
			slices.Contains(open, m.MethodName) {
			t.Errorf("%s: is it for administrators, or for all?", m.MethodName)
		}
	}
}
