package authn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// What is for servers only is named by its service.
func TestServicesForServers(t *testing.T) {
	for _, service := range []*grpc.ServiceDesc{&clusterpb.Core_ServiceDesc,
		&clusterpb.Bootstrap_ServiceDesc, &clusterpb.Coordination_ServiceDesc,
		&peerpb.Peer_ServiceDesc} {
		for _, m := range service.Methods {
			if method := "/" + service.ServiceName + "/" + m.MethodName; !ForServers(method) {
				t.Errorf("%s is for all", method)
			}
		}
	}
	if ForServers("/" + clusterpb.Cluster_ServiceDesc.ServiceName + "/Status") {
		t.Error("Cluster is for servers only")
	}
}

// closing is a connection that says when it is closed.
type closing struct {
	net.Conn
	closed chan struct{}
}

// Close implements net.Conn.
func (c closing) Close() error {
	close(c.closed)
	return nil
}

// A connection of a server is stale when its certificate counts no more, and is closed then; one of
// a client never is.
func TestStaleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		valid := true
		p := &PeerPolicy{Certificate: func(*tls.ConnectionState) error {
			if !valid {
				return errors.New("it has expired")
			}
			return nil
		}}
		conn := closing{closed: make(chan struct{})}
		of := func(info credentials.AuthInfo) context.Context {
			return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
		}
		server := of(serverInfo{credentials.TLSInfo{}, conn})
		if p.Stale(server) || p.Proved(server) != nil {
			t.Error("a server with a certificate that counts")
		}
		valid = false
		if !p.Stale(server) || p.Proved(server) == nil {
			t.Error("a server whose certificate has expired")
		}
		if p.Stale(of(credentials.TLSInfo{})) || p.Stale(t.Context()) {
			t.Error("a client")
		}
		<-conn.closed
	})
}
