package embedded

import (
	"github.com/tidemarkdb/tidemark/deploy/embedded/forward"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// maxForwardedPerConnection is the maximum number of forwarded calls on one connection to a member;
// see forward.Config.
const maxForwardedPerConnection = 512

// newForwarder makes the forwarder of calls of the etcd API to members of the core.
func (a *etcdAPI) newForwarder() *forward.Forwarder {
	perConnection := maxForwardedPerConnection
	if most := int(a.config.MaxStreams); most > 0 { // the other servers have the same setting
		perConnection = max(1, min(perConnection, most*3/4))
	}
	config := client.DialerConfig{Dial: a.config.Dial, Secret: a.peers.Secret,
		StreamWindow: wire.LeastStreamWindow, Logger: a.config.Logger}
	if a.tls != nil {
		config.TLSNow = a.tls.Client
	}
	return forward.New(forward.Config{
		Members:   a.otherMembers,
		Dialer:    func() *client.Dialer { return client.NewDialer(config) },
		Local:     a.Own,
		Forwarded: coreclient.IsForwarded, Outgoing: a.clients.EtcdCall,
		Refusal: a.noCoordination, Party: authn.PrincipalOfCall, Answers: a.answers,
		PerConnection: perConnection, Random: a.config.Random, Registry: prom.Registry(a.config.Registry),
		Bytes: a.memory.Forwarded,
	})
}

// otherMembers lists the known members of the core except this server.
func (a *etcdAPI) otherMembers() []string {
	var others []string
	for _, address := range a.member.addresses() {
		if address != a.config.Advertise {
			others = append(others, address)
		}
	}
	return others
}
