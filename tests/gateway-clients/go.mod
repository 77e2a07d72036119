module tollgate/tests/gateway-clients

go 1.24.0
