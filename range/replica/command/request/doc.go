// Package request derives from a request and the descriptor of its partition: which keys and spans
// the request touches (Footprint), which rights its client needs (Need...), whether it is valid
// (Check...), and how large it and the page that it asks for may be.
//
// Nothing here has state, and nothing changes or keeps a request. Package command combines these
// parts, one command for each kind of request.
package request
