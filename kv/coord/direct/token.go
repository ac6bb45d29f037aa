package direct

import (
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// authenticated stores the token that Authenticate has returned for the user of the client. Tokens
// of other users are ignored: an application may check the passwords of other users with
// Authenticate.
func (c *Calls) authenticated(request, answer any, err error) {
	q, isRequest := request.(*pb.AuthenticateRequest)
	a, isAnswer := answer.(*pb.AuthenticateResponse)
	if !isRequest || !isAnswer || !c.isUser(q.Name) {
		return
	}
	switch {
	case err == nil:
		token := a.Token
		c.token.Store(&token)
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled):
		c.token.Store(nil)
	}
}

// isUser reports whether name is the user of the client.
func (c *Calls) isUser(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.endpoints == nil {
		c.mu.user = name
	}
	return c.mu.user == name && name != ""
}
