# PostgreSQL for prism and for Dagster, two databases of one server. Sessions without TLS are refused.

resource "aws_db_subnet_group" "prism" {
  name       = var.name
  subnet_ids = var.database_subnet_ids
}

resource "aws_security_group" "database" {
  name        = "${var.name}-database"
  description = "PostgreSQL of ${var.name}"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "database" {
  for_each = toset(var.client_security_group_ids)

  security_group_id            = aws_security_group.database.id
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 5432
  to_port                      = 5432
}

resource "aws_db_parameter_group" "prism" {
  name_prefix = "${var.name}-"
  family      = "postgres17"

  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }

  # A session whose host vanished holds its locks until PostgreSQL sees that.
  parameter {
    name  = "tcp_keepalives_idle"
    value = "30"
  }

  parameter {
    name  = "tcp_keepalives_interval"
    value = "10"
  }

  parameter {
    name  = "tcp_keepalives_count"
    value = "3"
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_db_instance" "prism" {
  identifier     = var.name
  engine         = "postgres"
  engine_version = "17"
  instance_class = var.database_class

  storage_type          = "gp3"
  allocated_storage     = var.database_storage_gb
  max_allocated_storage = var.database_max_storage_gb
  storage_encrypted     = true

  db_name                             = "prism"
  username                            = "prism_admin"
  manage_master_user_password         = true
  iam_database_authentication_enabled = true
  ca_cert_identifier                  = "rds-ca-rsa2048-g1"
  parameter_group_name                = aws_db_parameter_group.prism.name

  multi_az               = var.database_multi_az
  db_subnet_group_name   = aws_db_subnet_group.prism.name
  vpc_security_group_ids = [aws_security_group.database.id]
  publicly_accessible    = false

  backup_retention_period      = var.backup_days
  copy_tags_to_snapshot        = true
  deletion_protection          = true
  skip_final_snapshot          = false
  final_snapshot_identifier    = "${var.name}-final"
  performance_insights_enabled = true
}
