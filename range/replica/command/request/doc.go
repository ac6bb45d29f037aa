// Package request tells what can be said of a request by the request itself and the descriptor of
// its partition: which keys and spans it touches (Footprint), which rights its client needs
// (Need...), what is wrong with it (Check...), and how large it and the page that it asks for may
// be.
//
// Nothing here has a state, and nothing changes or keeps a request. The commands (package command)
// put these parts together, one command for each kind of request.
package request
