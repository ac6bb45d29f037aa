// Package web has the parts of a server's HTTP addresses other than their pages: a server on its
// own listener (Server) or on connections that another listener has accepted (Handed), debug pages
// for administrators (Administrators), and handlers that are limited (Limited) or whose calls can
// be awaited (Counted).
package web
